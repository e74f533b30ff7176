"""Samples of the counters during a run, at the least cost, and how late they were taken."""

from __future__ import annotations

import json
import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path

from contract.files import write_lines
from instrumentation.sources.counter import ReadFailure, Reading
from instrumentation.sources.powercap import PowercapSource


class Sampler:
    """Reads the counters at a fixed rate in a separate thread; keeps the samples in memory.

    Nothing is written while it runs: that would be part of what is measured. Samples are due at
    whole periods after the start; a missed one is left out, for two in a row would add nothing.
    """

    def __init__(self, counters: PowercapSource, rate_hz: float) -> None:
        self._series = counters.series()
        self._rate_hz = rate_hz
        self._due_ns: array[int] = array("q")
        # Held until the end. A bare lock: to wait for an Event costs more.
        self._running = threading.Lock()
        self._thread = threading.Thread(target=self._sample, name="sampler", daemon=True)
        self._parsed: dict[str, list[Reading | ReadFailure]] | None = None

    def __enter__(self) -> Sampler:
        self._running.acquire()
        if self._rate_hz > 0:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.release()
        if self._thread.is_alive():
            self._thread.join()

    def _sample(self) -> None:
        period_ns = round(1e9 / self._rate_hz)
        clock_ns, take, ended, keep = (
            time.monotonic_ns,
            self._series.take,
            self._running.acquire,
            self._due_ns.append,
        )
        due_ns = clock_ns()
        while True:
            keep(due_ns)
            take()
            ahead_ns = due_ns + period_ns - clock_ns()
            if ahead_ns > 0:
                due_ns += period_ns
            else:
                due_ns = next_due_ns(due_ns, period_ns, clock_ns())
                ahead_ns = max(0, due_ns - clock_ns())
            if ended(True, ahead_ns / 1e9):
                return

    def readings(self) -> dict[str, list[Reading | ReadFailure]]:
        """Return all samples by zone, in order of time; only after the end."""
        if self._parsed is None:
            self._parsed = self._series.readings()
        return self._parsed

    def between(self, zone: str, after_ns: int, before_ns: int) -> Sequence[Reading | ReadFailure]:
        """Return a zone's samples that began after one time and ended before another."""
        samples = self.readings()[zone]
        first = bisect_right(samples, after_ns, key=lambda reading: reading.t_before_ns)
        last = bisect_left(samples, before_ns, key=end_ns)
        return samples[first:last]

    def lateness(self) -> dict[str, float | None]:
        """Return the number of samples, and how late they were, in ms (`sampler`)."""
        first = next(iter(self.readings().values()), [])
        late_ms = sorted(
            (reading.t_before_ns - due_ns) / 1e6
            for reading, due_ns in zip(first, self._due_ns, strict=True)
        )
        most = len(late_ms) - 1
        return {
            "rate_hz": self._rate_hz,
            "samples": len(late_ms),
            "late_p99_ms": round(late_ms[round(most * 0.99)], 3) if late_ms else None,
            "late_max_ms": round(late_ms[most], 3) if late_ms else None,
        }

    def write(self, path: Path) -> str:
        """Write the samples as `rapl.jsonl` (data/README.md), in order of time; return its SHA-256.

        The file is synced.
        """
        lines: list[tuple[int, str]] = []
        for zone, samples in self.readings().items():
            for reading in samples:
                begun = {"zone": zone, "t_before_ns": reading.t_before_ns}
                if isinstance(reading, ReadFailure):
                    end: dict[str, int | str] = {"error": reading.error}
                else:
                    end = {"t_after_ns": reading.t_after_ns, "energy_uj": reading.energy_uj}
                lines.append((reading.t_before_ns, json.dumps(begun | end)))
        lines.sort(key=lambda line: line[0])
        return write_lines(path, (line for _, line in lines))


def next_due_ns(due_ns: int, period_ns: int, now_ns: int) -> int:
    """Return the first whole period after the last sample's that is still to come."""
    return due_ns + period_ns * max(1, (now_ns - due_ns) // period_ns + 1)


def end_ns(reading: Reading | ReadFailure) -> int:
    """Return when a read had ended, as far as known."""
    return reading.t_after_ns if isinstance(reading, Reading) else reading.t_before_ns
