"""The load watermark: a pattern of load on the target by which a slow meter can be aligned.

Every CPU is busy in high chips and idle in low ones, following a maximum length sequence (Golomb
1967): its circular autocorrelation has one sharp peak, so the pattern fits the meter's readings at
one offset only. Times are integer nanoseconds of CLOCK_MONOTONIC.

One child process a CPU follows the same absolute deadlines and reports when it changed its load
(`watermark_load.py`).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from contract.problem import ProblemError
from instrumentation import watermark_load

# A chip is no shorter than this, so that a slow machine's scheduler can follow and enough readings
# fall into it; a chip with ten readings may have half that length.
SHORTEST_CHIP_S = 0.2
SHORTEST_DENSE_CHIP_S = 0.1
DENSE_PERIODS = 10
# Rest at both ends, in periods of the meter and in seconds; the longer one counts.
PAD_PERIODS = 3.0
SHORTEST_PAD_S = 0.5
# The start is so far ahead that all children have been told by then.
LEAD_NS = 200_000_000
# Share of a load's processor time, below which it shows nothing of a meter.
LEAST_RECEIVED = 0.5


class WatermarkError(ProblemError):
    """The load pattern could not be played; the message has the reason and the remedy."""


# The shift register x^5 + x^2 + 1: sixteen chips are 1, and the circular autocorrelation of the
# chips as ±1 is 31 or −1. Of the 31 rotations this one, with rest around it, has the lowest side
# lobes: main / side = 7.5.
CHIPS = tuple(map(int, "0010010110011111000110111010100"))


def chip_s(period_s: float) -> float:
    """Return the length of a chip in s for a meter with a reading every `period_s`.

    1.3 periods if that is long enough for the target to follow, else the shortest k + 1/2 periods
    (k ≥ 2) that is: 1.3 s at 1 Hz, 0.25 s at 10 Hz, 0.105 s at 100 Hz. A multiple of the period
    would put all edges at the same place of a window, and some places do not show the offset.
    Raises ValueError.
    """
    if not (math.isfinite(period_s) and period_s > 0):
        raise ValueError(f"a meter's period of {period_s} s is none")
    if 1.3 * period_s >= SHORTEST_CHIP_S:
        return 1.3 * period_s
    shortest_s = min(SHORTEST_CHIP_S, max(SHORTEST_DENSE_CHIP_S, DENSE_PERIODS * period_s))
    return (max(2, math.ceil(shortest_s / period_s - 0.5)) + 0.5) * period_s


def pad_s(period_s: float) -> float:
    """Return the rest in s before and after the chips, in which the meter sees the base load."""
    return max(PAD_PERIODS * period_s, SHORTEST_PAD_S)


@dataclass(frozen=True)
class Playback:
    """A watermark as it was played.

    `edges` are `(t_mono_ns, 1 or 0)`, the means of all children's times; `spread_ns` is how far the
    children were apart, in the mean of all edges.
    """

    cpus: int
    edges: tuple[tuple[int, int], ...]
    spread_ns: int

    @property
    def high_s(self) -> float:
        """Seconds of high chips, of all CPUs together."""
        times_ns = [t_ns for t_ns, _ in self.edges]
        return self.cpus * (sum(times_ns[1::2]) - sum(times_ns[::2])) * 1e-9


def play(chips: Sequence[int], chip_s: float, cpus: Collection[int] | None = None) -> Playback:
    """Load `cpus` (by default all that this process may use) in the chips that are 1.

    Blocks until the last chip is over. No child outlives this call or its process. Raises
    WatermarkError.
    """
    if 1 not in chips or chip_s <= 0:
        raise ValueError("a watermark needs a chip that is 1, and chips that last")
    children: list[subprocess.Popen[str]] = []
    try:
        for cpu in sorted(os.sched_getaffinity(0) if cpus is None else cpus):
            children.append(_start_child(cpu))
        for child in children:
            _read_answer(child)
        start_ns = time.monotonic_ns() + LEAD_NS
        ends = [start_ns + round(n * chip_s * 1e9) for n in range(len(chips) + 1)]
        for child in children:
            assert child.stdin is not None
            try:
                child.stdin.write(json.dumps(_busy_stretches(chips, ends)) + "\n")
                child.stdin.flush()
            except BrokenPipeError:
                _read_answer(child)
        edges = [json.loads(_read_answer(child)) for child in children]
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):  # a dead child has not read all
                        pipe.close()
    watermark_load.sleep_until(ends[-1])
    return _average(edges)


def _busy_stretches(chips: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int]]:
    """Return begin and end of each stretch of high chips."""
    stretches: list[tuple[int, int]] = []
    for chip, begin, end in zip(chips, ends, ends[1:], strict=False):
        if chip and stretches and stretches[-1][1] == begin:
            stretches[-1] = stretches[-1][0], end
        elif chip:
            stretches.append((begin, end))
    return stretches


def _average(edges: Sequence[Sequence[tuple[int, int]]]) -> Playback:
    """Average the edges of all children."""
    times = list(zip(*([t for t, _ in child] for child in edges), strict=True))
    mean_edges = tuple(
        (round(sum(t - edge[0] for t in edge) / len(edge)) + edge[0], level)
        for edge, (_, level) in zip(times, edges[0], strict=True)
    )
    spread_ns = sum(max(edge) - min(edge) for edge in times) // len(times)
    return Playback(len(edges), mean_edges, spread_ns)


def _start_child(cpu: int) -> subprocess.Popen[str]:
    # Isolated and without site: a child is ready sooner, and only its file is loaded.
    argv = [sys.executable, "-I", "-S", watermark_load.__file__, str(os.getpid()), str(cpu)]
    try:
        return subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )
    except OSError as error:
        raise WatermarkError("no-process", reason=error.strerror) from error


def _read_answer(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line.endswith("\n"):
        raise WatermarkError("process-ended", status=child.wait())
    return line
