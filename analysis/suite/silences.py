"""Stretches in which a meter or the target was not heard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.suite.align import reading_of
from analysis.suite.records import Meter
from analysis.suite.samples import EPOCHS, Samples
from instrumentation.clock import ClockReading

NS = 1_000_000_000
# A meter's silence after which its records count as a new stretch.
BREAK_WINDOWS, BREAK_NS = 30, 5_000_000_000
ENDED = frozenset({"suite-finished", "suite-failed"})
LINK_S = 60.0  # twice as long as from one look at the target's clock to the next


@dataclass(frozen=True)
class Silence:
    """Stretches of a meter's recordings without a record, those at which its port was opened again
    among them; or, with no meter's name, of the link to the target without an answer."""

    meter: str
    times: int
    seconds: float
    longest_s: float


def of_meters(meters: Iterable[Meter]) -> Iterator[Silence]:
    """Reads all times of the meters; one without a silence is left out."""
    for meter in meters:
        found = _silence(meter.name, pauses_s(meter.samples))
        if found is not None:
            yield found


def _silence(name: str, lengths_s: Sequence[float]) -> Silence | None:
    return Silence(name, len(lengths_s), sum(lengths_s), max(lengths_s)) if lengths_s else None


def of_link(
    readings: Iterable[Mapping[str, Any]], journal: Iterable[Mapping[str, Any]]
) -> Silence | None:
    """Of the lines of clock.jsonl, while the agent was at work by its journal; None without any."""
    at_work = _at_work(journal)
    lengths: list[float] = []
    last: dict[str, ClockReading] = {}
    for line in readings:
        reading, boot = reading_of(line), str(line.get("controller_boot_id"))
        if reading is None:
            continue
        before = last.get(boot, reading)
        pause_ns = reading.t_send_ns - before.t_receive_ns
        here = before.t_target_ns, before.t_target_ns + pause_ns
        worked_ns = sum(
            max(0, min(here[1], end) - max(here[0], start))
            for start, end in at_work.get(before.boot_id, [])
        )
        if worked_ns > LINK_S * NS:
            lengths.append(pause_ns / NS)
        last[boot] = reading
    return _silence("", lengths)


def _at_work(journal: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[int, int]]]:
    """By boot of the target, from the agent's starts to the closing or last lines, in its time."""
    found: dict[str, list[tuple[int, int]]] = {}
    closed = True
    for line in journal:
        boot, t_ns = str(line.get("boot_id")), line.get("t_mono_ns")
        if not isinstance(t_ns, int):
            continue
        spans = found.setdefault(boot, [])
        if closed or not spans:
            spans.append((t_ns, t_ns))
        spans[-1] = spans[-1][0], t_ns
        closed = line.get("state") in ENDED
    return found


def pauses_s(samples: Samples) -> list[float]:
    """Stretches between records that are longer than any bunch, and those where the port was opened
    again; not from boot to boot of the controller, whose distance need not be known."""
    found: list[float] = []
    last: tuple[int, int] | None = None
    for table in samples.tables(["t_mono_ns", "window_s", "epoch"]):
        arrival = table["t_mono_ns"].to_numpy()
        epoch = table["epoch"].to_numpy().astype(np.int64)
        first = last or (int(arrival[0]), int(epoch[0]))
        pause = np.diff(arrival, prepend=first[0])
        longest = np.maximum(BREAK_NS, table["window_s"].to_numpy() * BREAK_WINDOWS * NS)
        same = np.diff(epoch // EPOCHS, prepend=first[1] // EPOCHS) == 0
        opened = np.diff(epoch, prepend=first[1]) != 0
        found += (pause[((pause > longest) | opened) & same] / NS).tolist()
        last = int(arrival[-1]), int(epoch[-1])
    return found
