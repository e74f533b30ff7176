"""Each boot of the controller has its own clock: its times are moved onto one axis.

So is what comes after each sleep of the controller, while which its monotonic clock stood still.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from analysis.suite import samples
from analysis.suite.clocks import BOOT, BootClock, reading_of
from analysis.suite.recordings import Recording
from instrumentation.clock import ClockReading, OffsetModel, jump_ns

APART_NS = 60_000_000_000  # at least, between boots that nothing but wall time sets in order

LEAST_SLEEP_NS = 1_000_000_000
FOREVER_NS = 1 << 62

Span = tuple[int, int]


@dataclass(frozen=True)
class _Boot:
    """What is known of one boot of the controller, on its own clock."""

    models: Mapping[str, BootClock]  # by the target's boot
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


Sleeps = Mapping[str, Sequence[Span]]


def sleeps(lines: Iterable[Mapping[str, Any]]) -> Sleeps:
    """When each boot of the controller was suspended: between which two readings, on its clock.

    While it sleeps its monotonic clock stands still and the target's does not. By its own word, and
    by the target's clock, which then jumps forward.
    """
    found: dict[str, list[Span]] = {}
    last: dict[str, ClockReading] = {}
    for line in lines:
        reading = reading_of(line)
        if reading is None:
            continue
        boot = reading.controller_boot_id
        before = last.get(boot, reading)
        last[boot] = reading
        slept_ns = reading.controller_asleep_ns - before.controller_asleep_ns
        if before.boot_id == reading.boot_id:
            slept_ns = max(slept_ns, jump_ns(before, reading))
        if boot and slept_ns > LEAST_SLEEP_NS:
            found.setdefault(boot, []).append((before.t_receive_ns, reading.t_send_ns))
    return found


def woken(boot: str, number: int) -> str:
    """What a boot of the controller is called after it slept so often: times of both are as far
    apart as those of two boots."""
    return f"{boot}+{number}" if number else boot


def cut_lines(lines: Iterable[Mapping[str, Any]], slept: Sleeps) -> Iterator[Mapping[str, Any]]:
    """The lines of clock.jsonl, those after a sleep with another boot of the controller."""
    for line in lines:
        reading = reading_of(line)
        spans = slept.get(reading.controller_boot_id, ()) if reading else ()
        number = sum(reading.t_send_ns >= end for _, end in spans) if reading else 0
        yield {**line, BOOT: woken(str(line.get(BOOT) or ""), number)} if number else line


def cut_recordings(recordings: Sequence[Recording], slept: Sleeps) -> list[Recording]:
    """Each in as many as there are stretches between which its controller slept.

    What was recorded between the two readings of the clocks around a sleep is left out: on which
    side of it that lies, nobody can tell.
    """
    return [part for recording in recordings for part in _awake(recording, slept)]


def _awake(recording: Recording, slept: Sleeps) -> Iterator[Recording]:
    spans = slept.get(recording.boot, ())
    if not spans:
        yield recording
        return
    edges = [-FOREVER_NS, *(t for span in spans for t in span), FOREVER_NS]
    for number, (start_ns, end_ns) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
        yield replace(
            recording,
            boot=woken(recording.boot, number),
            samples=samples.between(recording.samples, start_ns, end_ns),
        )


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
    targets = {reading.boot_id for reading in readings}
    models = {target: BootClock(OffsetModel.pieces(readings, target)) for target in targets}
    spans += [(reading.t_send_ns, reading.t_receive_ns) for reading in readings]
    for target, model in models.items():
        if target in runs:
            begin, end = (model.to_controller_ns(t) for t in runs[target])
            spans.append((begin, end))
    span = (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None
    walls = [wall for recording in own if (wall := _wall_ns(recording)) is not None]
    return _Boot(models, span, min(walls, default=None))


def _shift(boot: str, boots: Mapping[str, _Boot], earlier: Mapping[str, int]) -> int:
    """By the target's clock where it continued, else behind all that came before."""
    here = boots[boot]
    for before in reversed(list(earlier)):
        for target in sorted(here.models.keys() & boots[before].models.keys()):
            old, new = boots[before].models[target].models[-1], here.models[target].models[0]
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
