"""Each boot of the controller has its own clock: its times are moved onto one axis.

So are times after a sleep of the controller, because its monotonic clock stops while it sleeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from analysis.suite import samples
from analysis.suite.clocks import BootClock
from analysis.suite.recordings import Recording
from contract.documents import RunDocument
from instrumentation.clock import ClockReading, OffsetModel, jump_ns

APART_NS = 60_000_000_000  # at least, between boots that nothing but wall time sets in order

LEAST_SLEEP_NS = 1_000_000_000
FOREVER_NS = 1 << 62

Span = tuple[int, int]


@dataclass(frozen=True)
class _Boot:
    """One boot of the controller, on its own clock."""

    models: Mapping[str, BootClock]  # by the target's boot
    span: Span | None
    wall_ns: int | None  # wall time where the monotonic clock is 0


@dataclass(frozen=True)
class Axis:
    """Readings and recordings of all boots of the controller, placed on one axis.

    `shift_ns` is how far the times of each boot's recordings must still be moved; the readings
    have been moved.
    """

    readings: tuple[ClockReading, ...]
    recordings: Sequence[Recording]
    shift_ns: Mapping[str, int]
    boots: int
    sleeps: int


def place_on_one_axis(
    readings: Sequence[ClockReading], recordings: Sequence[Recording], runs: Iterable[RunDocument]
) -> Axis:
    """Split readings and recordings at the controller's sleeps, and place its boots in time."""
    slept = sleeps(readings)
    recordings = [part for recording in recordings for part in _awake(recording, slept)]
    readings = list(cut_readings(readings, slept))
    spans: dict[str, Span] = {}  # of runs, by boot of the target on its own clock
    for run in runs:
        begin, end = spans.get(run.boot_id, (run.t_start_ns, run.t_end_ns))
        spans[run.boot_id] = min(begin, run.t_start_ns), max(end, run.t_end_ns)
    shift_ns = shifts(readings, recordings, spans)
    count = sum(map(len, slept.values()))
    moved = tuple(shifted(readings, shift_ns))
    return Axis(moved, recordings, shift_ns, max(1, len(shift_ns) - count), count)


def shifts(
    readings: Sequence[ClockReading], recordings: Sequence[Recording], runs: Mapping[str, Span]
) -> dict[str, int]:
    """Return by how many ns the times of each boot of the controller are moved; 0 for the first.

    `runs` has the span of the runs in each boot of the target, on its own clock: no other boot's
    samples may fall into it.
    """
    order = _order(readings, recordings)
    if len(order) < 2:
        return dict.fromkeys(order, 0)
    boots = {boot: _boot(boot, order[0], readings, recordings, runs) for boot in order}
    shift_ns: dict[str, int] = {}
    for boot in order:
        shift_ns[boot] = _shift(boot, boots, shift_ns) if shift_ns else 0
    return shift_ns


def shifted(
    readings: Iterable[ClockReading], shift_ns: Mapping[str, int]
) -> Iterator[ClockReading]:
    """Move the controller's times of all readings, and name the boot of each reading."""
    first = next(iter(shift_ns), "")
    for reading in readings:
        boot = reading.controller_boot_id or first
        by_ns = shift_ns.get(boot, 0)
        yield replace(
            reading,
            controller_boot_id=boot,
            t_send_ns=reading.t_send_ns + by_ns,
            t_receive_ns=reading.t_receive_ns + by_ns,
        )


Sleeps = Mapping[str, Sequence[Span]]


def sleeps(readings: Iterable[ClockReading]) -> Sleeps:
    """Find the two readings around each sleep of the controller, by its boots, on its own clock.

    The controller reports a sleep; the target's clock also shows it by a jump forward.
    """
    spans: dict[str, list[Span]] = {}
    last: dict[str, ClockReading] = {}
    for reading in readings:
        boot = reading.controller_boot_id
        before = last.get(boot, reading)
        last[boot] = reading
        slept_ns = reading.controller_asleep_ns - before.controller_asleep_ns
        if before.boot_id == reading.boot_id:
            slept_ns = max(slept_ns, jump_ns(before, reading))
        if boot and slept_ns > LEAST_SLEEP_NS:
            spans.setdefault(boot, []).append((before.t_receive_ns, reading.t_send_ns))
    return spans


def woken(boot: str, number: int) -> str:
    """Return the name of a boot after `number` sleeps, which counts as another boot."""
    return f"{boot}+{number}" if number else boot


def cut_readings(readings: Iterable[ClockReading], slept: Sleeps) -> Iterator[ClockReading]:
    """Assign the readings after each sleep to another boot of the controller."""
    for reading in readings:
        boot = reading.controller_boot_id
        number = sum(reading.t_send_ns >= end for _, end in slept.get(boot, ()))
        yield replace(reading, controller_boot_id=woken(boot, number))


def _awake(recording: Recording, slept: Sleeps) -> Iterator[Recording]:
    """Split a recording at the sleeps of its controller.

    Records between the two clock readings around a sleep are dropped: whether they precede or
    follow it is unknown.
    """
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


def _order(readings: Iterable[ClockReading], recordings: Sequence[Recording]) -> list[str]:
    """List boots in order of time; a reading or recording that names none is of the first."""
    named = (reading.controller_boot_id for reading in readings)
    order = list(dict.fromkeys(filter(None, named)))
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
    readings: Iterable[ClockReading],
    recordings: Iterable[Recording],
    runs: Mapping[str, Span],
) -> _Boot:
    of_boot = [r for r in readings if (r.controller_boot_id or first) == boot]
    recorded = [recording for recording in recordings if (recording.boot or first) == boot]
    spans = [span for recording in recorded if (span := recording.span_ns)]
    targets = {reading.boot_id for reading in of_boot}
    models = {target: BootClock(OffsetModel.pieces(of_boot, target)) for target in targets}
    spans += [(reading.t_send_ns, reading.t_receive_ns) for reading in of_boot]
    for target, model in models.items():
        if target in runs:
            begin, end = (model.to_controller_ns(t) for t in runs[target])
            spans.append((begin, end))
    span = (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None
    walls = [wall for recording in recorded if (wall := _wall_ns(recording)) is not None]
    return _Boot(models, span, min(walls, default=None))


def _shift(boot: str, boots: Mapping[str, _Boot], earlier: Mapping[str, int]) -> int:
    """Return a boot's shift by the target's clock if that ran on, else behind all earlier boots."""
    latest = boots[boot]
    for before in reversed(list(earlier)):
        for target in sorted(latest.models.keys() & boots[before].models.keys()):
            old, new = boots[before].models[target].models[-1], latest.models[target].models[0]
            middle = (old.knots[-1][0] + new.knots[0][0]) // 2
            return old.to_controller_ns(middle) + earlier[before] - new.to_controller_ns(middle)
    ends = [span[1] + earlier[b] for b in earlier if (span := boots[b].span)]
    least = max(ends, default=0) + APART_NS - (latest.span[0] if latest.span else 0)
    by_wall = [
        latest.wall_ns - wall + earlier[b]
        for b in reversed(list(earlier))
        if latest.wall_ns is not None and (wall := boots[b].wall_ns) is not None
    ]
    return max([least, *by_wall[:1]])


def _wall_ns(recording: Recording) -> int | None:
    """Return the wall time at monotonic time 0, from the start of a recording; None if unknown."""
    span = recording.span_ns
    try:
        started = datetime.fromisoformat(recording.started_wall)
    except ValueError:
        return None
    return None if span is None else round(started.timestamp() * 1e9) - span[0]
