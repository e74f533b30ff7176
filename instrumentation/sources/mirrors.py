"""Dies of one package whose zones show one and the same counter.

Some machines give every die a zone of its own although the hardware counts the package as a whole.
Their sum would be a multiple of the truth. Nothing in sysfs tells them apart; the numbers do: two
counters of their own never agree at several updates on end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from instrumentation.sources.zones import Zone

# Two separate 32-bit counters that agree this often on end by chance: never.
AGREEING_UPDATES = 5


def mirrors(
    zones: Sequence[Zone], value_uj: Callable[[int], int | None], until_s: float
) -> dict[str, str]:
    """`{mirror: zone whose counter it shows}`, by name; `value_uj` reads a counter by its index.

    Ends at `until_s` (time.monotonic): a pair that has not moved often enough by then is held for
    two counters.
    """
    found: dict[str, str] = {}
    # Values at which a pair agreed. All pairs in turn: one that stands still holds up no other.
    open_pairs: dict[tuple[int, int], set[int]] = {pair: set() for pair in _pairs(zones)}
    while open_pairs and time.monotonic() < until_s:
        for (first, second), agreed in list(open_pairs.items()):
            same = _agree(partial(value_uj, first), partial(value_uj, second), agreed)
            if same is not None:
                del open_pairs[first, second]
            if same:
                name = zones[first].name
                found.setdefault(zones[second].name, found.get(name, name))
        time.sleep(0.0002)
    return found


def _pairs(zones: Sequence[Zone]) -> Iterator[tuple[int, int]]:
    """Zones of one kind in different dies of one package."""
    for second, zone in enumerate(zones):
        for first, other in enumerate(zones[:second]):
            if zone.package and (zone.package, zone.kind) == (other.package, other.kind):
                yield first, second


Read = Callable[[], int | None]


def _agree(first: Read, second: Read, agreed: set[int]) -> bool | None:
    """Whether both show one counter; None where that cannot be told yet."""
    before, between, after = first(), second(), first()
    if before is None or between is None:
        return False
    if before != after:  # an update in between: the second may show either number
        return None
    if before != between:
        return False
    agreed.add(before)
    return True if len(agreed) > AGREEING_UPDATES else None
