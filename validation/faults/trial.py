"""One suite under a fault: planned, started, watched, brought to its end, judged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from contract.errors import LabError
from controller.seal import MANIFEST
from validation.faults import oracle, planning
from validation.faults.observer import Line, Observer
from validation.faults.planning import Small
from validation.faults.session import Controller
from validation.scene import Scene

AT_WORK = frozenset({"switching", "running"})
RESUMES = 30
RESUME_PAUSE_S = 5.0
LINE_LIMIT_S = 420.0


@dataclass
class Outcome:
    """What the table says of one fault. `reached` are the states in which it struck."""

    name: str
    times: int = 0
    wanted: int = 1
    quick: bool = False
    note: str = ""
    reached: list[str] = field(default_factory=list)
    wanted_reached: int = 0
    resumed_s: list[float] = field(default_factory=list)
    judgement: dict[str, Any] = field(default_factory=dict)
    # Other figures: what, how much, its unit, and what it may be at most.
    extra: list[tuple[str, float, str, float]] = field(default_factory=list)
    error: str = ""
    took_s: float = 0.0
    suite: str = ""
    machine: str = ""  # what the guest ran on


class Trial(AbstractContextManager["Trial"]):
    """A suite that runs while it is harmed. Leaving it ends what it has started."""

    def __init__(self, scene: Scene, name: str, suite_dir: Path) -> None:
        self.scene = scene
        self.name = name
        self.folder = scene.folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.suite_dir = suite_dir
        self.suite_id = self.suite_dir.name
        self.unit = f"fde-agent@{self.suite_id}.service"
        kept = self.folder / f"{self.suite_id}.observed.jsonl"
        self.observer = Observer(scene, self.suite_id, kept)
        self.controller = Controller(scene, self.suite_dir, self.folder / "controller.log")
        self._at = 0

    @classmethod
    def of(
        cls, scene: Scene, name: str, small: Small, *, seed: int = 1, out: Path | None = None
    ) -> Trial:
        """A trial with a small suite that is planned for it, below `out` or beside its log."""
        out = out or scene.folder / name / "suites"
        return cls(scene, name, planning.write(scene, name, small, seed, out))

    def __enter__(self) -> Trial:
        self.say(f"suite {self.suite_dir}")
        self.observer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.observer.stop()
        self.controller.end()
        if not self.sealed:
            stop = f"systemctl disable --now {self.unit}; systemctl reset-failed {self.unit}"
            try:
                self.scene.ssh(f"{stop}; true", limit_s=150)
            except LabError as failed:
                self.say(f"the agent could not be stopped: {failed}")

    @property
    def run_ids(self) -> list[str]:
        """All runs of the plan."""
        plan = json.loads((self.suite_dir / "plan.json").read_text(encoding="utf-8"))
        return [run["run_id"] for run in plan["runs"]]

    @property
    def sealed(self) -> bool:
        return (self.suite_dir / MANIFEST).exists()

    def say(self, line: str) -> None:
        self.scene.say(f"{self.name}: {line}")

    def wait(
        self,
        wanted: Callable[[Line], bool],
        what: str,
        limit_s: float = LINE_LIMIT_S,
        start: int | None = None,
    ) -> Line:
        """The next line that is wanted, counted from `mark`; continues with the suite meanwhile."""
        deadline = time.monotonic() + limit_s
        start = self._at if start is None else start
        while True:
            self.keep_going()
            try:
                return self.observer.wait(wanted, start=start, limit_s=5.0, what=what)
            except LabError:
                if time.monotonic() > deadline:
                    raise LabError(f"no {what} in {limit_s:.0f} s: {self.last()}") from None

    def wait_state(self, *states: str, limit_s: float = LINE_LIMIT_S) -> Line:
        return self.wait(lambda line: line.entry.state in states, "/".join(states), limit_s)

    def mark(self) -> int:
        """From here on `wait` looks at new lines only; returns the number."""
        self._at = len(self.observer.lines())
        return self._at

    def last(self) -> str:
        lines = self.observer.lines()
        return str(lines[-1].entry) if lines else "no line at all"

    def keep_going(self) -> None:
        """Start the controller again where it has ended before the suite was sealed."""
        if self.sealed or self.controller.running():
            return
        if self.controller.starts:
            code = self.controller.wait(1)
            self.say(f"the controller ended with {code}; resumed ({self._words()})")
            if self.controller.starts > RESUMES:
                raise LabError(f"resumed {RESUMES} times and still not sealed: {self._words()}")
            if code > 0:
                time.sleep(RESUME_PAUSE_S)  # as long as a person takes to read why
        self.controller.start()

    def finish(self, limit_s: float) -> None:
        """Let the suite come to its end and be sealed. Raises LabError where it does not."""
        deadline = time.monotonic() + limit_s
        while not self.sealed or self.controller.running():
            if time.monotonic() > deadline:
                raise LabError(f"not sealed in {limit_s:.0f} s: {self.last()}; {self._words()}")
            self.keep_going()
            time.sleep(0.5)

    def judge(self, names: Sequence[str]) -> dict[str, Any]:
        """What the oracle says; told to people at once."""
        seen = [line.entry for line in self.observer.lines()]
        found = oracle.judge(self.scene, self.suite_dir, seen, names)
        for sentence in (*found.lost, *found.false, *found.said):
            self.say(f"WRONG: {sentence}")
        self.say(
            f"{found.finished} of {found.runs} runs finished, {found.seen} seen, "
            f"{len(found.lost)} lost, {len(found.false)} false, "
            f"verify {'passes' if found.verified else 'FAILS'}"
        )
        return asdict(found)

    def _words(self) -> str:
        log = self.folder / "controller.log"
        return " / ".join(log.read_text(encoding="utf-8").splitlines()[-3:])


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Kept beside the trial, so that a table can be made of trials of several days."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(outcome), indent=2) + "\n"
    (folder / "outcome.json").write_text(text, encoding="utf-8")


def read_outcomes(folder: Path) -> dict[str, Outcome]:
    """All that were kept, by name."""
    found = {}
    for path in sorted(folder.glob("*/outcome.json")):
        outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        found[outcome.name] = outcome
    return found
