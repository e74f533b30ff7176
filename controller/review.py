"""After the suite's end and before the seal: runs that a meter has not seen are asked for again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent import tries
from contract import journal, strict_json
from contract.errors import ControllerError
from contract.journal import Entry
from contract.plan import Plan
from controller import coverage
from controller.orders import Orders
from instrumentation.clock import boot_id

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


def ask(orders: Orders, found: Review, note: Callable[[str], None]) -> None:
    """Request the repetitions, and say what is asked for. Raises ControllerError."""
    for sentence in found.sentences():
        note(sentence)
    for run in found.repeat:
        orders.repeat(run.finished, run.reason)


def _uncovered(suite_dir: Path, last: dict[str, Entry], meters: Sequence[str]) -> list[Uncovered]:
    recordings = []
    for folder in sorted((suite_dir / "meters").glob("*/")):
        try:
            recordings.append(coverage.Recording.read(folder))
        except (OSError, ValueError, KeyError) as error:
            raise ControllerError(f"{folder} cannot be read ({error}): restore it.") from None
    own_boot = next((r.boot_id for r in recordings if r.boot_id), boot_id())
    clocks = coverage.Clocks.of(suite_dir / "clock.jsonl", own_boot)
    found = []
    for run_id, entry in last.items():
        if entry.state != "finished":
            continue
        run = _run(suite_dir / "runs" / run_id / "run.json")
        try:
            shares = coverage.of_run(run, meters, recordings, clocks)
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
