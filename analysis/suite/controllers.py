"""Boots of the controller on one axis of time: later ones are shifted behind the earlier ones.

A monotonic clock starts anew with each boot. Where the target stayed up while the controller was
away, the target's clock tells how far two boots of the controller are apart; else wall time does,
roughly, and never so that one boot's times reach into another's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from analysis.suite.align import reading_of
from analysis.suite.recordings import Recording
from instrumentation.clock import ClockError, OffsetModel

APART_NS = 60_000_000_000  # at least, between boots that nothing but wall time sets in order
BOOT = "controller_boot_id"

Span = tuple[int, int]


@dataclass(frozen=True)
class _Boot:
    """What is known of one boot of the controller, on its own clock."""

    models: Mapping[str, OffsetModel]  # by the target's boot
    span: Span | None
    wall_ns: int | None  # wall time where the monotonic clock is 0


def shifts(
    lines: Sequence[Mapping[str, Any]],
    recordings: Sequence[Recording],
    runs: Mapping[str, Span],
) -> dict[str, int]:
    """By boot of the controller, how far its times are moved, in ns; 0 for the first.

    `lines` are those of clock.jsonl; `runs` tells for each boot of the target from when to when
    runs went, on its own clock: what lies there must find no other boot's samples.
    """
    order = _order(lines, recordings)
    if len(order) < 2:
        return dict.fromkeys(order, 0)
    boots = {boot: _boot(boot, order[0], lines, recordings, runs) for boot in order}
    found: dict[str, int] = {}
    for boot in order:
        found[boot] = _shift(boot, boots, found) if found else 0
    return found


def shifted(
    lines: Iterable[Mapping[str, Any]], shift_ns: Mapping[str, int]
) -> Iterator[Mapping[str, Any]]:
    """The lines of clock.jsonl with the controller's times moved, and each with its boot."""
    first = next(iter(shift_ns), "")
    for line in lines:
        boot = str(line.get(BOOT) or first)
        moved = dict(line) | {BOOT: boot}
        with suppress(KeyError, TypeError, ValueError, OverflowError):  # no reading: stays one
            moved |= {
                key: int(line[key]) + shift_ns.get(boot, 0) for key in ("t_send_ns", "t_receive_ns")
            }
        yield moved


def _order(lines: Iterable[Mapping[str, Any]], recordings: Sequence[Recording]) -> list[str]:
    """Boots in order of time. A line or a recording that names none belongs to the first."""
    order = list(dict.fromkeys(str(line[BOOT]) for line in lines if line.get(BOOT)))
    for name in dict.fromkeys(recording.name for recording in recordings):
        place = 0
        for boot in (r.boot for r in recordings if r.name == name and r.boot):
            if boot not in order:
                order.insert(place, boot)
            place = order.index(boot) + 1
    return order


def _boot(
    boot: str,
    first: str,
    lines: Iterable[Mapping[str, Any]],
    recordings: Iterable[Recording],
    runs: Mapping[str, Span],
) -> _Boot:
    readings = [
        r for line in lines if (line.get(BOOT) or first) == boot and (r := reading_of(line))
    ]
    own = [recording for recording in recordings if (recording.boot or first) == boot]
    spans = [span for recording in own if (span := recording.span_ns)]
    models = {}
    for target in {reading.boot_id for reading in readings}:
        with suppress(ClockError):
            models[target] = OffsetModel.fit(readings, target)
    spans += [(reading.t_send_ns, reading.t_receive_ns) for reading in readings]
    for target, model in models.items():
        if target in runs:
            begin, end = (model.to_controller_ns(t) for t in runs[target])
            spans.append((begin, end))
    span = (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None
    walls = [wall for recording in own if (wall := _wall_ns(recording)) is not None]
    return _Boot(models, span, min(walls, default=None))


def _shift(boot: str, boots: Mapping[str, _Boot], earlier: Mapping[str, int]) -> int:
    """By the target's clock where it went on, else behind all that came before."""
    here = boots[boot]
    for before in reversed(list(earlier)):
        for target in sorted(here.models.keys() & boots[before].models.keys()):
            old, new = boots[before].models[target], here.models[target]
            middle = (old.knots[-1][0] + new.knots[0][0]) // 2
            return old.to_controller_ns(middle) + earlier[before] - new.to_controller_ns(middle)
    ends = [span[1] + earlier[b] for b in earlier if (span := boots[b].span)]
    least = max(ends, default=0) + APART_NS - (here.span[0] if here.span else 0)
    by_wall = [
        here.wall_ns - wall + earlier[b]
        for b in reversed(list(earlier))
        if here.wall_ns is not None and (wall := boots[b].wall_ns) is not None
    ]
    return max([least, *by_wall[:1]])


def _wall_ns(recording: Recording) -> int | None:
    """Wall time at the origin of the monotonic clock, by when the recording began."""
    span = recording.span_ns
    try:
        started = datetime.fromisoformat(recording.started_wall)
    except ValueError:
        return None
    return None if span is None else round(started.timestamp() * 1e9) - span[0]
