"""Before the seal: runs that a meter has not seen enough of are asked for again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent import tries
from contract import journal, strict_json
from contract.errors import ControllerError
from contract.journal import Entry
from contract.plan import Plan
from controller.agent_client import AgentClient
from instrumentation.clock import ClockError, ClockReading, OffsetModel, boot_id, load_readings

if TYPE_CHECKING:
    import polars as pl


# A record that came late is no missing one: without a time of its own, so many windows of patience.
PATIENCE_WINDOWS = 2.0

Holes = np.ndarray[tuple[int, int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Recording:
    """One folder of a meter: stretches without records, `(start, end)` in ns of the clock of the
    controller's boot `boot_id`; the first begins and the last ends beyond all time."""

    meter: str
    boot_id: str
    holes: Holes

    @classmethod
    def read(cls, folder: Path) -> Recording:
        """From meter.json and samples.parquet. Raises OSError, ValueError, KeyError."""
        import polars as pl  # takes a second: not at the start of every command
        from polars.exceptions import PanicException, PolarsError

        described = strict_json.loads((folder / "meter.json").read_text(encoding="utf-8"))
        if not isinstance(described, dict):
            raise ValueError("meter.json is no description of a meter")
        columns = ["epoch", "t_mono_ns", "t_device_us", "window_s"]
        boot = str(described.get("controller_boot_id", ""))
        try:
            samples = pl.read_parquet(folder / "samples.parquet", columns=columns)
            late_ns = float(described.get("arrival_delay_limit_s", 0)) * 1e9
            holes = _holes(samples, late_ns)
        except (TypeError, OverflowError, PolarsError, PanicException) as error:
            raise ValueError(str(error)) from None
        return cls(str(described.get("name", folder.name)), boot, holes)

    def covered(self, start_ns: int, end_ns: int) -> float:
        """Share of a stretch of time with records."""
        if end_ns <= start_ns:
            return 1.0
        first = np.searchsorted(self.holes[:, 1], start_ns)
        last = np.searchsorted(self.holes[:, 0], end_ns)
        holes = self.holes[first:last]
        missing = np.minimum(holes[:, 1], end_ns) - np.maximum(holes[:, 0], start_ns)
        return 1.0 - float(missing.clip(min=0).sum()) / (end_ns - start_ns)


def _holes(samples: pl.DataFrame, late_ns: float) -> Holes:
    """Each record stands for the window before it came; what lies between two is a hole."""
    ends_of_time = np.iinfo(np.int64)
    if samples.is_empty():
        return np.array([[ends_of_time.min // 4, ends_of_time.max // 4]], np.int64)
    came = samples["t_mono_ns"].to_numpy()
    window = (samples["window_s"].to_numpy() * 1e9).astype(np.int64)
    same = np.diff(samples["epoch"].to_numpy()) == 0
    gap = np.diff(came) - window[1:]
    patience = PATIENCE_WINDOWS * window[1:] + late_ns
    missing = gap > patience
    device = samples["t_device_us"]
    if device.null_count() == 0:
        # The meter's own time tells of each record, however late it came.
        lost = np.diff(device.to_numpy()) * 1000 - window[1:]
        missing = np.where(same & (lost >= 0), lost > window[1:] // 2, missing)
        gap = np.where(same & (lost >= 0), np.maximum(gap, lost), gap)
    before = came[1:] - window[1:]
    inner = np.stack([before - gap, before], axis=1)[missing]
    first = [[ends_of_time.min // 4, came[0] - window[0]]]
    last = [[came[-1], ends_of_time.max // 4]]
    return np.concatenate([first, inner, last]).astype(np.int64)


class Clocks:
    """Maps times of a target's boot to the clock of a controller's boot, where both were read."""

    def __init__(self, readings: Iterable[ClockReading], own_boot: str) -> None:
        """`own_boot` stands for readings that do not say of which boot of the controller."""
        self._readings: dict[tuple[str, str], list[ClockReading]] = {}
        for reading in readings:
            key = (reading.boot_id, reading.controller_boot_id or own_boot)
            self._readings.setdefault(key, []).append(reading)
        self._models: dict[tuple[str, str], OffsetModel] = {}

    @classmethod
    def of(cls, path: Path, own_boot: str) -> Clocks:
        """Those of clock.jsonl; none where there is no such file."""
        try:
            return cls(load_readings(path), own_boot)
        except ClockError:
            return cls([], own_boot)

    def model(self, boot_id: str, controller_boot_id: str) -> OffsetModel | None:
        """None where the two clocks were never compared."""
        key = (boot_id, controller_boot_id)
        if key not in self._readings:
            return None
        if key not in self._models:
            self._models[key] = OffsetModel.fit(self._readings[key])
        return self._models[key]


def of_run(
    run: Mapping[str, Any], meters: Sequence[str], recordings: Sequence[Recording], clocks: Clocks
) -> dict[str, float]:
    """For each meter, the least share of any measured phase that it has records of.

    A run lies within one boot of the controller: of several, the best counts.
    """
    least = dict.fromkeys(meters, 0.0)
    for recording in recordings:
        model = clocks.model(run["boot_id"], recording.boot_id)
        if model is None or recording.meter not in least:
            continue
        there = model.to_controller_ns
        shares = [
            recording.covered(there(phase["t_start_ns"]), there(phase["t_end_ns"]))
            for phase in run["phases"]
            if phase["name"] != "tail"
        ]
        least[recording.meter] = max(least[recording.meter], min(shares, default=1.0))
    return least


LEAST_COVERAGE = 0.98
NAMED = 3


@dataclass(frozen=True)
class Uncovered:
    """A finished run that a meter has too few records of, and the line that finished it."""

    finished: Entry
    meter: str
    share: float

    @property
    def reason(self) -> str:
        """For the journal."""
        return f"{self.meter} recorded {self.share:.0%} of a phase, {LEAST_COVERAGE:.0%} are needed"


@dataclass(frozen=True)
class Review:
    """What is left to do: runs to `repeat`, runs that stay `uncovered` for want of tries, and runs
    that are `void`."""

    repeat: tuple[Uncovered, ...]
    uncovered: tuple[Uncovered, ...]
    void: tuple[str, ...]

    def sentences(self) -> list[str]:
        """For people."""
        told = []
        if self.repeat:
            told.append(f"{_runs(self.repeat)} asked for again: {_named(self.repeat)}")
        if self.uncovered:
            told.append(
                f"{_runs(self.uncovered)} without a whole recording after all tries, flagged in "
                f"the report: {_named(self.uncovered)}"
            )
        return told


def review(plan: Plan, suite_dir: Path, meters: Sequence[str]) -> Review:
    """Judge what was fetched and decoded. Raises ControllerError where that is damaged."""
    entries = journal.read(suite_dir / "journal.jsonl")
    accounts = tries.Accounts(entries)
    last = {entry.run_id: entry for entry in entries if entry.run_id}
    repeat: list[Uncovered] = []
    uncovered: list[Uncovered] = []
    for found in _uncovered(suite_dir, last, meters):
        left = accounts.of(found.finished.run_id).failed + 1 < plan.attempts
        (repeat if left else uncovered).append(found)
    finished = {run_id for run_id, entry in last.items() if entry.state == "finished"}
    void = [run.run_id for run in plan.runs if run.run_id not in finished]
    return Review(tuple(repeat), tuple(uncovered), tuple(void))


def ask(agent: AgentClient, found: Review, note: Callable[[str], None]) -> None:
    """Request the repetitions, and say what is asked for. Raises ControllerError."""
    for sentence in found.sentences():
        note(sentence)
    for run in found.repeat:
        agent.repeat(run.finished, run.reason)


def _uncovered(suite_dir: Path, last: dict[str, Entry], meters: Sequence[str]) -> list[Uncovered]:
    recordings = []
    for folder in sorted((suite_dir / "meters").glob("*/")):
        try:
            recordings.append(Recording.read(folder))
        except (OSError, ValueError, KeyError) as error:
            raise ControllerError(f"{folder} cannot be read ({error}): restore it.") from None
    own_boot = next((r.boot_id for r in recordings if r.boot_id), boot_id())
    clocks = Clocks.of(suite_dir / "clock.jsonl", own_boot)
    found = []
    for run_id, entry in last.items():
        if entry.state != "finished":
            continue
        run = _run(suite_dir / "runs" / run_id / "run.json")
        try:
            shares = of_run(run, meters, recordings, clocks)
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise ControllerError(
                f"How well {run_id} was recorded cannot be told ({error}): seal what was measured "
                f"with python -m controller seal {suite_dir}."
            ) from None
        worst = min(shares, key=lambda name: shares[name], default=None)
        if worst is not None and shares[worst] < LEAST_COVERAGE:
            found.append(Uncovered(entry, worst, shares[worst]))
    return found


def _run(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = strict_json.loads(path.read_text(encoding="utf-8"))
        return {"boot_id": found["boot_id"], "phases": found["phases"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ControllerError(
            f"{path} cannot be read ({error}): fetch the results again with make resume."
        ) from None


def _runs(found: Sequence[Uncovered]) -> str:
    return f"{len(found)} run{'s' if len(found) > 1 else ''}"


def _named(found: Sequence[Uncovered]) -> str:
    told = [f"{run.finished.run_id} ({run.reason})" for run in found[:NAMED]]
    more = len(found) - NAMED
    return "; ".join([*told, f"and {more} more"] if more > 0 else told)
