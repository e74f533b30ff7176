"""Before the seal: runs that a meter has not seen enough of are asked for again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contract import journal
from contract.attempts import History
from contract.errors import ControllerError
from contract.journal import Entry
from contract.plan import Plan
from controller.session.agent_client import AgentClient

NAMED = 3


@dataclass(frozen=True)
class Uncovered:
    """A finished run that a meter has too few records of, and the line that finished it."""

    finished: Entry
    meter: str
    share: float
    needed: float

    @property
    def reason(self) -> str:
        """For the journal."""
        return f"{self.meter} recorded {self.share:.0%} of a phase, {self.needed:.0%} are needed"


@dataclass(frozen=True)
class Review:
    """What is left to do: runs to `repeat`, and those that are `void`.

    Runs without an attempt left stay `uncovered`.
    """

    repeat: tuple[Uncovered, ...]
    uncovered: tuple[Uncovered, ...]
    void: tuple[str, ...]

    def sentences(self) -> list[str]:
        """For people."""
        sentences = []
        if self.repeat:
            sentences.append(f"{_runs(self.repeat)} asked for again: {_named(self.repeat)}")
        if self.uncovered:
            sentences.append(
                f"{_runs(self.uncovered)} without a whole recording after all tries, flagged in "
                f"the report: {_named(self.uncovered)}"
            )
        return sentences


def review(plan: Plan, suite_dir: Path, meters: Sequence[str]) -> Review:
    """Judge what was fetched and decoded. Raises ControllerError where that is damaged."""
    entries = journal.read(suite_dir / "journal.jsonl")
    history = History(entries)
    repeat: list[Uncovered] = []
    uncovered: list[Uncovered] = []
    finished = {a.run_id: a.finished for a in history.latest if a.finished and not a.void}
    for loss in _uncovered(suite_dir, finished, meters):
        left = history.account(loss.finished.run_id).failed + 1 < plan.attempts
        (repeat if left else uncovered).append(loss)
    void = [run.run_id for run in plan.runs if run.run_id not in finished]
    return Review(tuple(repeat), tuple(uncovered), tuple(void))


def ask(agent: AgentClient, losses: Review, note: Callable[[str], None]) -> None:
    """Request the repetitions, and note what is asked for. Raises ControllerError."""
    for sentence in losses.sentences():
        note(sentence)
    for run in losses.repeat:
        agent.repeat(run.finished, run.reason)


def _uncovered(
    suite_dir: Path, finished: Mapping[str, Entry], meters: Sequence[str]
) -> list[Uncovered]:
    """By the analysis itself, so that no run is sealed that its tables then flag."""
    from analysis.stats import results  # takes seconds: not at the start of every command
    from analysis.suite.records import SuiteError

    restore = f"restore it, or seal what was measured with python -m controller seal {suite_dir}."
    try:
        derived = results.results(suite_dir)
    except SuiteError as error:
        raise ControllerError(error) from None
    suite = derived.suite
    for run in (*suite.void, *suite.skipped):
        if run.run_id in finished:
            raise ControllerError("run-unusable", run=run.run_id, reason=run.reason)
    readable = {meter.name for meter in suite.meters if meter.samples.columns}
    for name in meters:
        if name not in readable and (folder := suite_dir / "meters" / name).is_dir():
            raise ControllerError("meters-unread", folder=folder, restore=restore)
    worst: dict[str, tuple[float, str]] = {}
    if absent := sorted(set(meters) - readable):
        worst = dict.fromkeys(finished, (0.0, absent[0]))
    short = results.uncovered_phases(derived.all_energy).select("run_id", "coverage", "source")
    for run_id, share, meter in short.iter_rows():
        if meter in meters:
            worst[run_id] = min((share, meter), worst.get(run_id, (share, meter)))
    return [
        Uncovered(finished[run_id], meter, share, results.COVERED)
        for run_id, (share, meter) in sorted(worst.items())
    ]


def _runs(runs: Sequence[Uncovered]) -> str:
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''}"


def _named(runs: Sequence[Uncovered]) -> str:
    names = [f"{run.finished.run_id} ({run.reason})" for run in runs[:NAMED]]
    more = len(runs) - NAMED
    return "; ".join([*names, f"and {more} more"] if more > 0 else names)
