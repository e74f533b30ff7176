"""Stretches in which a meter or the target was not heard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.align import reading_of
from analysis.records import Meter
from analysis.samples import EPOCHS, Samples
from analysis.windows import BREAK_NS, BREAK_WINDOWS

NS = 1_000_000_000
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


def of_link(readings: Iterable[Mapping[str, Any]]) -> Silence | None:
    """Of the lines of clock.jsonl; None without a silence."""
    return _silence("", _unlinked_s(readings))


def _unlinked_s(readings: Iterable[Mapping[str, Any]]) -> list[float]:
    """Stretches without a clock reading, within one boot of the controller."""
    last: dict[str, int] = {}
    found = []
    for line in readings:
        reading = reading_of(line)
        if reading is None:
            continue
        boot = str(line.get("controller_boot_id"))
        pause_s = (reading.t_send_ns - last.get(boot, reading.t_send_ns)) / NS
        if pause_s > LINK_S:
            found.append(pause_s)
        last[boot] = reading.t_receive_ns
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
