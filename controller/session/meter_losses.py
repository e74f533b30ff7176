"""Find runs with too few records of a meter before the seal, and request that they are repeated."""

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

MOST_NAMED = 3


@dataclass(frozen=True)
class Uncovered:
    """A run with too few records of a meter; `finished` is its last line in the journal."""

    finished: Entry
    meter: str
    share: float
    needed: float

    @property
    def reason(self) -> str:
        """The reason for a repetition, as written to the journal."""
        return f"{self.meter} recorded {self.share:.0%} of a phase, {self.needed:.0%} are needed"


@dataclass(frozen=True)
class Review:
    """Runs that are not complete: those to `repeat`, and those that are `void`.

    Runs with all attempts used up stay `uncovered`.
    """

    repeat: tuple[Uncovered, ...]
    uncovered: tuple[Uncovered, ...]
    void: tuple[str, ...]

    def sentences(self) -> list[str]:
        """Describe the runs to repeat and those that stay uncovered, for people."""
        outcomes = {
            "asked for again": self.repeat,
            "without a whole recording after all tries, flagged in the report": self.uncovered,
        }
        sentences = []
        for outcome, runs in outcomes.items():
            described = [f"{run.finished.run_id} ({run.reason})" for run in runs[:MOST_NAMED]]
            if len(runs) > MOST_NAMED:
                described.append(f"and {len(runs) - MOST_NAMED} more")
            if runs:
                number = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
                sentences.append(f"{number} {outcome}: {'; '.join(described)}")
        return sentences


def review(plan: Plan, suite_dir: Path, meters: Sequence[str]) -> Review:
    """Review the fetched and decoded records. Raises ControllerError if they are damaged."""
    entries = journal.read(suite_dir / "journal.jsonl")
    history = History(entries)
    repeat: list[Uncovered] = []
    uncovered: list[Uncovered] = []
    finished = {a.run_id: a.finished for a in history.latest if a.finished and not a.void}
    for loss in _uncovered(suite_dir, finished, meters):
        has_attempts = history.account(loss.finished.run_id).failed + 1 < plan.attempts
        (repeat if has_attempts else uncovered).append(loss)
    void = [run.run_id for run in plan.runs if run.run_id not in finished]
    return Review(tuple(repeat), tuple(uncovered), tuple(void))


def ask(agent: AgentClient, losses: Review, note: Callable[[str], None]) -> None:
    """Request the repetitions of a review and note them. Raises ControllerError."""
    for sentence in losses.sentences():
        note(sentence)
    for run in losses.repeat:
        agent.repeat(run.finished, run.reason)


def _uncovered(
    suite_dir: Path, finished: Mapping[str, Entry], meters: Sequence[str]
) -> list[Uncovered]:
    """Ask the analysis itself, so that no run is sealed that its tables then flag."""
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
