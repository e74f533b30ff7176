"""The counters of a powercap tree, their nesting, and which may be added up.

Layout: `/sys/class/powercap/intel-rapl/intel-rapl:N[/intel-rapl:N:M]/{name,energy_uj,
max_energy_range_uj}` (kernel, Documentation/power/powercap). The numbers have no meaning: psys may
be before a package or between two. `intel-rapl-mmio` shows package counters a second time; its
zones are used only if `intel-rapl` has none of that name.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from contract import system_text
from instrumentation.sources.counter import MAX_POWER_W, PLATFORM_MAX_POWER_W
from instrumentation.sources.updates import ENOUGH, WATCH_S, longest_intervals_ns

_CONTROL_TYPES = ("intel-rapl", "intel-rapl-mmio")
_TOP_ZONE = re.compile(r"intel-rapl(?:-mmio)?:\d+")
_PACKAGE = re.compile(r"(package-\d+)(-die-\d+)?")
_DIE = re.compile(r"-die-\d+")
_LIMITS = "constraint_*_max_power_uw", "constraint_*_power_limit_uw"


@dataclass(frozen=True)
class Zone:
    """One counter.

    `name` is the kernel's: package-0, package-0-die-1, psys, and below a package core, uncore or
    dram, after the package's name (`package-1/dram`) if there are several packages.

    `max_range_uj` is None if the kernel does not show it. `parent` names the zone above. A zone
    with `mirror_of` shows the counter of that other zone again. `max_power_w` is more than the zone
    can draw over the time in which its counter wraps. `update_ns` is the longest time without an
    update at the opening, None if it had no update.
    """

    name: str
    path: Path
    max_range_uj: int | None
    parent: str | None = None
    mirror_of: str | None = None
    max_power_w: float = MAX_POWER_W
    update_ns: int | None = None

    @property
    def kind(self) -> str:
        """`package` (a whole one or a die of it), `core`, `uncore`, `dram`, `psys`, or its name."""
        return kind_of(self.name)

    @property
    def package(self) -> str | None:
        """The package of the zone, without the die: package-0."""
        match = _PACKAGE.match(self.parent or self.name)
        return match[1] if match else None


class HeldZones:
    """Counters with open files, a descriptor for each zone; a context that closes them."""

    def __init__(self, zones: tuple[Zone, ...], descriptors: tuple[int, ...]) -> None:
        self.zones = zones
        self._descriptors = descriptors

    @property
    def names(self) -> Sequence[str]:
        """The zones' names, in the order of the descriptors."""
        return [zone.name for zone in self.zones]

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kind_of(name: str) -> str:
    """Return the kind of a zone of this name, without package, die and number: see `Zone.kind`."""
    return re.split(r"-\d", name.rsplit("/", 1)[-1], maxsplit=1)[0]


def default_max_power_w(name: str) -> float:
    """Return the power bound of a zone of this name if nothing else is known."""
    return PLATFORM_MAX_POWER_W if kind_of(name) == "psys" else MAX_POWER_W


def summands(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the zones to add up for the machine, by `package` (or their dies) and `dram`.

    Empty if there is none, as for AMD's memory. Core and uncore are within the package, psys
    includes everything. `names` are without mirrors, which show another zone's counter.
    """
    groups: dict[str, list[str]] = {"package": [], "dram": []}
    for name in names:
        if (kind := kind_of(name)) in groups:
            groups[kind].append(name)
    # A die is counted within its package, if that is shown too.
    return {
        kind: [n for n in zones if (package := _DIE.sub("", n)) == n or package not in zones]
        for kind, zones in groups.items()
    }


def not_counted(names: Iterable[str]) -> str:
    """Describe in two sentences which parts of the machine zones of these names do not count."""
    memory = any(kind_of(name) == "dram" for name in names)
    covered, unseen = ("processor and memory", "") if memory else ("the processor", "memory, ")
    return (
        f"RAPL counts {covered} alone: none of its joules holds {unseen}disks, network, display, "
        "board, fans, other cards or the losses of the power supply. Work that moves from the "
        "processor into one of these looks like a saving here."
    )


def discover(root: Path) -> tuple[Zone, ...]:
    """Return all counters below a powercap tree, each once, in the kernel's order.

    The power bound is that of instrumentation.sources.counter, or the zone's highest limit if that
    is more. A limit never lowers it: limits can be switched off, and hold only on the average. A
    zone without `energy_uj` has only power limits and is no counter.
    """
    zones: dict[str, Zone] = {}
    for name, path, parent in named_zones(root):
        if name not in zones and (path / "energy_uj").exists():
            files = [file for pattern in _LIMITS for file in path.glob(pattern)]
            highest_w = max((_number(file) or 0 for file in files), default=0) / 1e6
            bound_w = max(default_max_power_w(name), highest_w)
            range_uj = _number(path / "max_energy_range_uj") or None
            zones[name] = Zone(name, path, range_uj, parent, None, bound_w)
    return tuple(zones.values())


def named_zones(root: Path) -> Iterator[tuple[str, Path, str | None]]:
    """Yield name, folder and parent of every zone of a tree, also of those without a counter."""
    tops = {t: _distinct_names(_top_zones(root, t)) for t in _CONTROL_TYPES}
    packages = {name for names in tops.values() for name in names.values()}
    several = sum(name.startswith("package") for name in packages) > 1
    for control_type in _CONTROL_TYPES:
        for top, top_name in tops[control_type].items():
            yield top_name, top, None
            is_plain = not several and top_name.startswith("package")
            for child, name in _distinct_names(_numbered(top, f"{control_type}:*:*")).items():
                yield (name if is_plain else f"{top_name}/{name}"), child, top_name


def _distinct_names(zones: Sequence[Path]) -> dict[Path, str]:
    """Return the name of each of these zones, which are siblings.

    Equal names are numbered, those of packages as dies: each zone is a counter, not a copy.
    """
    names = {zone: system_text.read_line(zone / "name") for zone in zones}
    for name in dict.fromkeys(names.values()):
        like = [zone for zone in zones if names[zone] == name]
        for number, zone in enumerate(like if len(like) > 1 else ()):
            part = "-die-" if _PACKAGE.fullmatch(name) else "-"
            names[zone] = f"{name}{part}{number}"
    return names


def _number(file: Path) -> int | None:
    try:
        return system_text.read_number(file)
    except OSError:
        return None


def _numbered(folder: Path, pattern: str) -> list[Path]:
    """Return zone folders in the order of their numbers."""
    zones = [zone for zone in folder.glob(pattern) if (zone / "name").is_file()]
    return sorted(zones, key=lambda zone: [int(n) for n in re.findall(r"\d+", zone.name)])


def _top_zones(root: Path, control_type: str) -> list[Path]:
    """Return the top zones below their control type, or next to it if there are only flat links."""
    for folder in (root / control_type, root):
        zones = _numbered(folder, f"{control_type}:*")
        tops = [zone for zone in zones if _TOP_ZONE.fullmatch(zone.name)]
        if tops:
            return tops
    return []


# Two separate 32-bit counters never rise alike this often in a row by chance.
AGREEING_UPDATES = 5
MIRROR_WAIT_S = 0.25
MOST_APART_UJ = 1_000_000  # used between the openings of two mirrors: 1 kW for 1 ms
_LONGER = 8  # times as long if some counters rose alike so far: platforms may update each 100 ms

Read = Callable[[], int | None]


def watch_counters(
    zones: Sequence[Zone],
    reads: Sequence[Read],
    mirror_wait_s: float = MIRROR_WAIT_S,
    watch_s: float = WATCH_S,
    enough: int = ENOUGH,
) -> tuple[Zone, ...]:
    """Return the zones with `mirror_of` and `update_ns` as their counters show them.

    `reads` give their counts in µJ, None if one cannot be read. Every reader of RAPL opens with it:
    a package whose dies show one counter would be added up several times.
    """
    mirrored = mirrors(zones, reads, time.monotonic() + mirror_wait_s, _LONGER * mirror_wait_s)
    intervals = longest_intervals_ns(reads, watch_s, enough)
    return tuple(
        replace(zone, mirror_of=mirrored.get(zone.name), update_ns=update_ns)
        for zone, update_ns in zip(zones, intervals, strict=True)
    )


def mirrors(
    zones: Sequence[Zone], reads: Sequence[Read], until_s: float, longer_s: float = 0.0
) -> dict[str, str]:
    """Return for each mirror the zone whose counter it shows, by name.

    Ends at `until_s` (time.monotonic), or up to `longer_s` later while two counters have risen
    alike so far. A pair that has not moved often enough by then is taken for two counters.
    """
    originals: dict[str, str] = {}
    # Counts of the first at which a pair agreed, and how much more the second showed. All pairs in
    # turn: one that stands still delays no other.
    open_pairs: dict[tuple[int, int], dict[int, int]] = {
        (first, second): {}
        for second, zone in enumerate(zones)
        for first, other in enumerate(zones[:second])
        # Zones of one kind in different dies of one package.
        if zone.package and (zone.package, zone.kind) == (other.package, other.kind)
    }
    while open_pairs:
        late_s = time.monotonic() - until_s
        if late_s > longer_s or (late_s > 0 and all(len(a) < 2 for a in open_pairs.values())):
            break
        for (first, second), agreed in list(open_pairs.items()):
            same = _agree(reads[first], reads[second], agreed)
            if same is not None:
                del open_pairs[first, second]
            if same:
                name = zones[first].name
                originals.setdefault(zones[second].name, originals.get(name, name))
        time.sleep(0.0002)
    return originals


def _agree(first: Read, second: Read, agreed: dict[int, int]) -> bool | None:
    """Return whether both show one counter; None if that is not known yet.

    Counts of perf_event begin at the opening, and mirrors there differ by what was used between
    two openings, within the µJ to which counts are rounded. Two counters that happen to rise alike
    are further apart.
    """
    before, between, after = first(), second(), first()
    if before is None or between is None:
        return False
    if before != after:  # an update in between: the second may show either count
        return None
    agreed[before] = between - before
    apart = agreed.values()
    if max(apart) - min(apart) > 1 or abs(agreed[before]) > MOST_APART_UJ:
        return False
    return True if len(agreed) > AGREEING_UPDATES else None
