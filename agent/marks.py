"""Marks of a run: phases with the counters read at their edges, and samples in between."""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from agent.errors import AgentError
from instrumentation.sources.counter import READ_FAILED, ReadFailure, Reading, total
from instrumentation.sources.powercap import Zone
from workloads.base import Work

Readings = Mapping[str, Reading | ReadFailure]


class MarkError(AgentError):
    """Phases were marked in a way that cannot be evaluated."""


class Counters(Protocol):
    """What is needed of `instrumentation.sources.powercap.PowercapSource`."""

    @property
    def zones(self) -> tuple[Zone, ...]: ...
    def read(self) -> Readings: ...


class Sampler:
    """Reads the counters at a fixed rate in a thread of its own; keeps them in memory.

    Nothing is written while it runs: a write would be part of what is measured.
    """

    def __init__(self, counters: Counters, rate_hz: float) -> None:
        self.samples: list[Readings] = []
        self._counters = counters
        self._rate_hz = rate_hz
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        if self._rate_hz > 0:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _sample(self) -> None:
        period_s = 1 / self._rate_hz
        due_s = time.monotonic()
        while not self._stop.wait(max(0.0, due_s - time.monotonic())):
            self.samples.append(self._counters.read())
            # A late sample is not made up for: two in a row would tell nothing new.
            due_s = max(due_s + period_s, time.monotonic())

    def write(self, path: Path) -> None:
        """Write the samples as `rapl.jsonl` (data/README.md)."""
        with path.open("w", encoding="ascii") as file:
            for sample in self.samples:
                for zone, reading in sample.items():
                    file.write(json.dumps({"zone": zone, **asdict(reading)}) + "\n")


class Marks:
    """The phases of one run, in order of time; `phase` is what a workload is given."""

    def __init__(self, counters: Counters, sampler: Sampler) -> None:
        self._counters = counters
        self._sampler = sampler
        self._open: str | None = None
        self._phases: list[tuple[dict[str, Any], Readings, Readings, Work]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[Work]:
        """Mark a stretch. Raises MarkError for a nested phase or a name used twice.

        The counters are read outside the two time stamps, as close to them as can be; each reading
        carries stamps of its own.
        """
        if self._open is not None:
            raise MarkError(f"Phase {name!r} was begun within phase {self._open!r}.")
        if any(phase["name"] == name for phase, *_ in self._phases):
            raise MarkError(f"There are two phases {name!r} in one run.")
        self._open = name
        work = Work()
        cpu_s = _own_cpu_s()
        start = self._counters.read()
        t_start_ns = time.monotonic_ns()
        try:
            yield work
        finally:
            t_end_ns = time.monotonic_ns()
            end = self._counters.read()
            phase = {
                "name": name,
                "t_start_ns": t_start_ns,
                "t_end_ns": t_end_ns,
                "own_cpu_s": round(_own_cpu_s() - cpu_s, 6),
            }
            self._phases.append((phase, start, end, work))
            self._open = None

    def tail(self, seconds: float) -> None:
        """The last phase: write back what is dirty, then rest; `seconds` from its beginning."""
        end_s = time.monotonic() + seconds
        with self.phase("tail"):
            os.sync()
            time.sleep(max(0.0, end_s - time.monotonic()))

    def document(self) -> list[dict[str, Any]]:
        """`phases` of run.json."""
        return [
            {
                **phase,
                "counters": [self._counter(zone, start, end) for zone in self._counters.zones],
                "work": dict(work.amounts),
            }
            for phase, start, end, work in self._phases
        ]

    def _counter(self, zone: Zone, start: Readings, end: Readings) -> dict[str, Any]:
        first, last = start[zone.name], end[zone.name]
        # Samples in between bound the wraps: what cannot wrap twice between two of them is exact.
        between = [
            reading
            for sample in list(self._sampler.samples)
            if isinstance(reading := sample[zone.name], Reading)
            and _end_ns(first) < reading.t_before_ns
            and reading.t_after_ns < last.t_before_ns
        ]
        flags = set(total([first, *between, last], zone.max_range_uj).flags)
        if isinstance(first, ReadFailure) or isinstance(last, ReadFailure):
            flags.add(READ_FAILED)
        return {
            "source": "rapl",
            "zone": zone.name,
            "start": reading_document(first),
            "end": reading_document(last),
            "max_range_uj": zone.max_range_uj,
            "flags": sorted(flags),
        }


def reading_document(reading: Reading | ReadFailure | None) -> dict[str, Any] | None:
    """A reading for run.json; null where the read failed."""
    return asdict(reading) if isinstance(reading, Reading) else None


def _end_ns(reading: Reading | ReadFailure) -> int:
    return reading.t_after_ns if isinstance(reading, Reading) else reading.t_before_ns


def _own_cpu_s() -> float:
    """CPU time of the agent itself with all its threads, without the programs it started."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
