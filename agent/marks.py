"""Marks of a run: its phases with the counters at their edges, and a session's watermarks."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agent.phase_pyrapl import Measured, PhasePyrapl
from agent.sampler import Sampler, end_ns
from contract import strict_json
from contract.block_traffic import BlockTraffic
from contract.documents import Counter, Phase, WatermarkLine
from contract.errors import AgentError
from contract.files import append_line
from contract.journal import boot_id
from contract.plan import Watermark
from instrumentation import watermark as pattern
from instrumentation.sources.counter import (
    MIRROR,
    READ_FAILED,
    REOPENED,
    EnergyDifference,
    ReadFailure,
    Reading,
    Readings,
    edge_at,
    total,
)
from instrumentation.sources.powercap import PowercapSource
from instrumentation.sources.zones import Zone
from workloads.base import Work


class MarkError(AgentError):
    """Phases were marked in a way that cannot be evaluated."""


# A rest that ended no longer ago than this still holds.
STILL_RESTED_NS = 10_000_000


@dataclass(frozen=True)
class _Marked:
    """A phase that is over, with the counters at its edges."""

    phase: Phase
    start: Readings
    end: Readings
    pyrapl: Measured | None
    work: Work


class Marks:
    """The phases of one run in order of time; workloads are given `phase`.

    The machine rests for `pad_s` before and after each phase: what a slow meter reports of a window
    that a mark cuts can then be divided by the power at rest. With `pyrapl` each phase is measured
    by that too. `devices` are the kernel names of the partition below the configuration and of the
    mapping with the file system, whose traffic is counted; either may be empty.
    """

    def __init__(
        self,
        counters: PowercapSource,
        sampler: Sampler,
        pad_s: float = 0.0,
        pyrapl: PhasePyrapl | None = None,
        devices: tuple[str, str] = ("", ""),
    ) -> None:
        self._pyrapl = pyrapl
        self._counters = counters
        self._sampler = sampler
        self._pad_s = pad_s
        self._devices = devices
        self._rested_ns: int | None = None
        self._open: str | None = None
        self._phases: list[_Marked] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[Work]:
        """Mark a phase, with rest before and after it.

        Raises MarkError for a nested phase or a name used twice.
        """
        self._check(name)
        if self._rested_ns is None or time.monotonic_ns() - self._rested_ns > STILL_RESTED_NS:
            self._pad()
        with self._marked(name) as work:
            yield work
        self._pad()

    def _check(self, name: str) -> None:
        if self._open is not None:
            raise MarkError("phase-within-phase", name=name, open=self._open)
        if any(marked.phase.name == name for marked in self._phases):
            raise MarkError("phase-twice", name=name)

    def _pad(self) -> None:
        if self._pad_s > 0:
            time.sleep(self._pad_s)
            self._rested_ns = time.monotonic_ns()

    @contextmanager
    def _marked(self, name: str) -> Iterator[Work]:
        """Mark the phase itself.

        The counters are read outside the two time stamps, as close to them as possible; each
        reading carries its own stamps, and ours enclose pyRAPL's. Our own CPU time is that between
        the time stamps, of all threads but not of the programs that were started.
        """
        self._check(name)
        self._open = name
        work = Work()
        traffic = self._traffic()
        start = self._counters.read()
        busy_s, stolen_s = cpus_s()
        if self._pyrapl is not None:
            self._pyrapl.begin()
        cpu_s = time.process_time()
        t_start_ns = time.monotonic_ns()
        try:
            yield work
        finally:
            t_end_ns = time.monotonic_ns()
            own_cpu_s = time.process_time() - cpu_s
            measured = None if self._pyrapl is None else self._pyrapl.end()
            end = self._counters.read()
            busy_end_s, stolen_end_s = cpus_s()
            traffic_end = self._traffic()
            phase = Phase(
                name,
                t_start_ns,
                t_end_ns,
                own_cpu_s=round(own_cpu_s, 6),
                cpu_busy_s=round(busy_end_s - busy_s, 6),
                cpu_stolen_s=round(stolen_end_s - stolen_s, 6),
                **_moved("disk", traffic[0], traffic_end[0]),
                **_moved("mapping", traffic[1], traffic_end[1]),
            )
            self._phases.append(_Marked(phase, start, end, measured, work))
            self._open = None

    def _traffic(self) -> list[BlockTraffic | None]:
        return [BlockTraffic.of_device(name) if name else None for name in self._devices]

    def tail(self, seconds: float) -> None:
        """Mark the last phase, of `seconds`: write back dirty pages, then rest."""
        with self._marked("tail"):
            end_s = time.monotonic() + seconds
            os.sync()
            time.sleep(max(0.0, end_s - time.monotonic()))

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases with their counters and work, as run.json has them."""
        return tuple(
            replace(
                marked.phase,
                counters=tuple(self._counters_of(marked)),
                work=dict(marked.work.amounts),
                planned=dict(marked.work.planned),
                reported=dict(marked.work.reported),
                disk_bounds=dict(marked.work.disk_bounds),
            )
            for marked in self._phases
        )

    def _counters_of(self, marked: _Marked) -> Iterator[Counter]:
        """Yield our reading of each zone, then pyRAPL's of those that it measures."""
        totals = {}
        for zone in self._counters.zones:
            first, last = marked.start[zone.name], marked.end[zone.name]
            # Samples in between bound the wraps: what cannot wrap twice between two is exact.
            between = self._sampler.between(zone.name, end_ns(first), last.t_before_ns)
            series = [first, *between, last]
            totals[zone.name] = total(series, zone.max_range_uj, zone.max_power_w, windows=False)
            yield _counter(zone, first, last, totals[zone.name])
        if marked.pyrapl is not None:
            for zone in self._counters.zones:
                name = zone.name
                enclosing = totals[name], marked.start[name], marked.end[name]
                if zone.kind in ("package", "dram") and zone.mirror_of is None:
                    yield marked.pyrapl.counter(zone, *enclosing)


def _counter(
    zone: Zone,
    first: Reading | ReadFailure,
    last: Reading | ReadFailure,
    difference: EnergyDifference,
) -> Counter:
    flags = set(difference.flags)
    # Only here is it known that a fall was no wrap: the counter was opened again in between.
    is_restarted = difference.energy_uj is None and REOPENED in flags
    if isinstance(first, ReadFailure) or isinstance(last, ReadFailure):
        flags.add(READ_FAILED)
    if zone.mirror_of is not None:
        flags.add(MIRROR)
    return Counter(
        "rapl",
        zone.name,
        start=edge_at(first),
        end=None if is_restarted else edge_at(last),
        max_range_uj=zone.max_range_uj,
        flags=tuple(sorted(flags)),
        update_ns=zone.update_ns,
    )


def written_bytes(device: Path, blocks: Path = Path("/sys/class/block")) -> int:
    """Count the bytes that the kernel has written to a block device; raises OSError."""
    if (traffic := BlockTraffic.of_device(device.name, blocks)) is None:
        raise OSError(errno.ENODATA, "the kernel's I/O statistics are switched off")
    return traffic.written_bytes


def _moved(name: str, before: BlockTraffic | None, after: BlockTraffic | None) -> dict[str, Any]:
    """Return the bytes moved in between, as fields of a phase; no mapping discards."""
    moved = after - before if after and before else None
    verbs = ("read", "written", "discarded")[: 3 if name == "disk" else 2]
    return {f"{name}_{verb}_bytes": moved and getattr(moved, f"{verb}_bytes") for verb in verbs}


STAT = Path("/proc/stat")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# user nice system idle iowait irq softirq steal; guest, which follows, is counted under user.
_BUSY = (0, 1, 2, 5, 6)
_STEAL = 7


def cpus_s(stat: Path = STAT) -> tuple[float, float]:
    """Return busy and stolen seconds since boot of all logical CPUs, in clock ticks (10 ms).

    Busy excludes idle and iowait; stolen is what a hypervisor kept from the CPUs. See proc_stat(5).
    """
    with stat.open("rb", buffering=0) as file:
        line = file.read(512).split(b"\n", 1)[0]
    ticks = [int(word) for word in line.split()[1:]]
    return sum(ticks[place] for place in _BUSY) / _TICKS_PER_S, ticks[_STEAL] / _TICKS_PER_S


FILE = "watermark.jsonl"


def play(watermark: Watermark | None, suite_dir: Path, when: str) -> None:
    """Play rest, load pattern, rest; then append one line to `watermark.jsonl`, synced.

    `when` is `start` or `end`. Nothing happens if the plan has no watermark. A pattern that could
    not be played costs the suite only its check of the clocks, so the line has the error. Starts
    and ends alternate within a boot, however often the agent was started in between.
    """
    if watermark is None:
        return
    lines = list(strict_json.lines(WatermarkLine, suite_dir / FILE))
    if lines and (lines[-1].boot_id, lines[-1].when) == (boot_id(), when):
        return
    line = WatermarkLine(boot_id(), when, chip_s=watermark.chip_s, pad_s=watermark.pad_s)
    time.sleep(watermark.pad_s)
    busy_s, _ = cpus_s()
    try:
        played = pattern.play(pattern.CHIPS, watermark.chip_s)
    except pattern.WatermarkError as error:
        line = replace(line, error=str(error))
    else:
        edges = tuple(played.edges)
        received = (cpus_s()[0] - busy_s) / played.high_s
        line = replace(line, cpus=played.cpus, spread_ns=played.spread_ns, edges=edges)
        line = replace(line, received=round(received, 3))
    time.sleep(watermark.pad_s)
    append_line(suite_dir / FILE, asdict(line))
