"""One suite under a fault: planned, started, watched, finished, judged."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contract import schema
from contract.errors import LabError
from contract.files import write_json
from contract.plan import TargetDocument
from controller.planning.compiler import compile_plan
from controller.planning.suites import parse_suite
from controller.session.seal import MANIFEST
from lab.state import REPOSITORY
from validation.faults import oracle
from validation.faults.controller import Controller
from validation.faults.observer import Line, Observer
from validation.scene import Scene

PLACE = REPOSITORY / "build" / "faults"
AT_WORK = frozenset({"switching", "running"})
RESUMES = 30
RESUME_PAUSE_S = 5.0
LINE_LIMIT_S = 420.0
END_LIMIT_S = 3600.0
MESSAGE_S, EARLY_S = 60.0, 5.0
# The program that gets the messages: when each came by the monotonic clock, and its event.
NOTE_MESSAGE = (
    "import json, sys, time; "
    "line = json.dumps([time.monotonic(), json.load(sys.stdin)['event']]); "
    "open(sys.argv[1], 'a').write(line + chr(10))"
)
IDLE: dict[str, Any] = {"name": "idle", "parameters": {"seconds": 2}}
FILE_IO: dict[str, Any] = {
    "name": "file_io",
    "parameters": {
        "small_files": 1,
        "small_mib": 1,
        "large_mib": 4,
        "source": "zero",
        "fsync": True,
    },
}


@dataclass(frozen=True)
class Small:
    """Parameters of one small suite."""

    blocks: int = 2
    run_limit_s: float = 600.0
    loads: tuple[dict[str, Any], ...] = (IDLE, FILE_IO)
    configurations: tuple[str, ...] = ("plain", "opal", "dmcrypt-aes256")

    def write_plan(self, scene: Scene, name: str, seed: int, out: Path) -> Path:
        """Freeze the plan into a new folder below `out`; returns that folder."""
        suite = {
            "summary": f"short runs, for the trial of {name} in the lab",
            "blocks": self.blocks,
            "workloads": list(self.loads),
            "configurations": list(self.configurations),
            "rapl_hz": 10,
            "settle_s": 0.2,
            "tail_s": 0.2,
            "watermark": False,  # it would be played at every start again
            "drift_check": False,
            "attempts": 5,
            "run_limit_s": self.run_limit_s,
        }
        target = schema.read(TargetDocument, scene.target)
        plan = compile_plan(f"fault-{name}", parse_suite(name, suite), target, seed=seed)
        folder = out / plan.suite_id
        folder.mkdir(parents=True)
        write_json(folder / "plan.json", plan.document())
        return folder


@dataclass
class Outcome:
    """Result of one fault, as the table shows it. `reached` are the states in which it struck."""

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
    struck_s: list[float] = field(default_factory=list)  # by this machine's monotonic clock
    error: str = ""
    took_s: float = 0.0
    suite: str = ""
    machine: str = ""  # what the guest ran on

    def struck(self, state: str) -> None:
        """Count the fault, done while the journal's last state was this one."""
        self.times += 1
        self.struck_s.append(time.monotonic())
        self.reached.append(state)


class Trial(AbstractContextManager["Trial"]):
    """A suite that runs while a fault is injected. Leaving it ends what it has started."""

    def __init__(self, scene: Scene, name: str, suite_dir: Path, seed: int = 1) -> None:
        self.scene = scene
        self.name = name
        self.seed = seed
        self.folder = scene.folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.suite_dir = suite_dir
        self.suite_id = self.suite_dir.name
        self.unit = f"fde-agent@{self.suite_id}.service"
        lines_file = self.folder / f"{self.suite_id}.observed.jsonl"
        self.observer = Observer(scene, self.suite_id, lines_file)
        self._messages = self.folder / f"{self.suite_id}.messages.jsonl"
        target = self.folder / "target.json"
        write_json(target, scene.target | self._additions())
        log = self.folder / "controller.log"
        self.controller = Controller(scene, self.suite_dir, log, target)
        self._at = 0

    def _additions(self) -> dict[str, Any]:
        """Return an addition to the inventory: a receiver of messages."""
        note = [sys.executable, "-IS", "-c", NOTE_MESSAGE, str(self._messages)]
        receiver = {"name": "trial", "argv": note}
        return {"notify": {"void_runs": 1, "receivers": [receiver]}}

    def message_s(self, events: Sequence[str], since_s: float) -> float:
        """Return seconds to the first message of these events; infinite if none arrived.

        The session may see the journal's line some seconds before the observer does.
        """
        lines = self._messages.read_text("utf-8").splitlines() if self._messages.exists() else []
        messages = (json.loads(line) for line in lines)
        later = [at_s for at_s, event in messages if event in events and at_s >= since_s - EARLY_S]
        return max(0.0, later[0] - since_s) if later else math.inf

    def __enter__(self) -> Trial:
        self.say(f"suite {self.suite_dir}")
        self.observer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.observer.stop()
        self.controller.end()
        if not self.sealed:
            stop = f"systemctl disable --now {self.unit}; systemctl reset-failed {self.unit}"
            try:
                self.scene.ssh(f"{stop}; true", limit_s=150)
            except LabError as failed:
                self.say(f"the agent could not be stopped: {failed}")

    @property
    def sealed(self) -> bool:
        return (self.suite_dir / MANIFEST).exists()

    def say(self, line: str) -> None:
        self.scene.say(f"{self.name}: {line}")

    def finished(self, start: int = 0) -> int:
        """Count the runs that finished from line `start` on."""
        return sum(line.entry.state == "finished" for line in self.observer.lines(start))

    def wait(
        self,
        matches: Callable[[Line], bool],
        event: str,
        limit_s: float = LINE_LIMIT_S,
        start: int | None = None,
    ) -> Line:
        """Return the next matching line from `mark` on; continues with the suite meanwhile."""
        deadline = time.monotonic() + limit_s
        start = self._at if start is None else start
        while True:
            self.keep_going()
            try:
                return self.observer.wait(matches, start=start, limit_s=5.0, event=event)
            except LabError:
                if time.monotonic() > deadline:
                    raise LabError(f"no {event} in {limit_s:.0f} s: {self.last()}") from None

    def wait_state(self, *states: str, limit_s: float = LINE_LIMIT_S) -> Line:
        return self.wait(lambda line: line.entry.state in states, "/".join(states), limit_s)

    def wait_resumed(
        self, event: str, limit_s: float = LINE_LIMIT_S, states: frozenset[str] = AT_WORK
    ) -> float:
        """Return the seconds from now to the next line of these states."""
        now_s = time.monotonic()
        line = self.wait(
            lambda line: line.received_s > now_s and line.entry.state in states,
            f"line of work after {event}",
            limit_s,
        )
        return line.received_s - now_s

    def mark(self) -> int:
        """Make `wait` look only at lines from here on; return the number of lines so far."""
        self._at = len(self.observer.lines())
        return self._at

    def last(self) -> str:
        lines = self.observer.lines()
        return str(lines[-1].entry) if lines else "no line at all"

    def pause(self, seconds: float) -> None:
        """Continue with the suite meanwhile, restarting its controller as a user would."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.keep_going()
            time.sleep(1)

    def keep_going(self) -> None:
        """Start the controller again if it has ended before the suite was sealed."""
        if self.sealed or self.controller.running():
            return
        if self.controller.starts:
            code = self.controller.wait(1)
            self.say(f"the controller ended with {code}; resumed ({self._last_log_lines()})")
            if self.controller.starts > RESUMES:
                lines = self._last_log_lines()
                raise LabError(f"resumed {RESUMES} times and still not sealed: {lines}")
            if code > 0:
                time.sleep(RESUME_PAUSE_S)  # as long as a person takes to read why
        self.controller.start()

    def finish(self, limit_s: float = END_LIMIT_S) -> None:
        """Wait until the suite ends and is sealed. Raises LabError if it does not."""
        deadline = time.monotonic() + limit_s
        while not self.sealed or self.controller.running():
            if time.monotonic() > deadline:
                lines = self._last_log_lines()
                raise LabError(f"not sealed in {limit_s:.0f} s: {self.last()}; {lines}")
            self.keep_going()
            time.sleep(0.5)

    def judge(self, *reported: Collection[str]) -> dict[str, Any]:
        """Return the oracle's judgement, which is also logged; each `reported` as in `Fault`."""
        observed = [line.entry for line in self.observer.lines()]
        judgement = oracle.judge(self.scene, self.suite_dir, observed, reported)
        for sentence in (*judgement.lost, *judgement.false, *judgement.problems):
            self.say(f"WRONG: {sentence}")
        self.say(
            f"{judgement.finished} of {judgement.runs} runs finished, {judgement.observed} seen, "
            f"{len(judgement.lost)} lost, {len(judgement.false)} false, "
            f"verify {'passes' if judgement.verified else 'FAILS'}"
        )
        return asdict(judgement)

    def _last_log_lines(self) -> str:
        log = self.folder / "controller.log"
        return " / ".join(log.read_text(encoding="utf-8").splitlines()[-3:])


@dataclass(frozen=True)
class Fault:
    """One fault, injected into a small suite.

    `does` and `undone` are sentences on what it does and how that is taken back. `inject` acts on
    the running suite and notes in the outcome what it did; it raises LabError where that cannot be
    done. `reported` are codes (oracle.codes), one of which the analysis must then find. `quick` is
    the suite where it is to be shortened, None where it never is. `place` makes the folder for the
    suite from the one for the log. `needs` are abilities of the machine (lab.machines.base).
    `events` are those of the message that a receiver gets within a minute of the fault, or of the
    line of the journal (its state is one of `causes`) that the fault leads to.
    """

    name: str
    does: str
    undone: str
    inject: Callable[[Trial, Outcome], None]
    reported: tuple[str, ...]
    small: Small = Small()
    quick: Small | None = None
    place: Callable[[Path], AbstractContextManager[Path]] = lambda log: nullcontext(log / "suites")
    needs: frozenset[str] = frozenset()
    events: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()

    def run(self, scene: Scene, seed: int, quick: bool) -> Outcome:
        """Run the suite under a fault; `seed` determines the random moments. Raises LabError."""
        shortened = self.quick if quick else None
        outcome = Outcome(self.name, quick=shortened is not None)
        folder = scene.folder / self.name
        with self.place(folder) as out:
            suite_dir = (shortened or self.small).write_plan(scene, self.name, seed, out)
            with Trial(scene, self.name, suite_dir, seed) as trial:
                self.inject(trial, outcome)
                trial.finish()
                self._judge_message(trial, outcome)
                outcome.judgement = trial.judge(self.reported)
        outcome.suite = str(folder / "suites" / suite_dir.name)
        return outcome

    def _judge_message(self, trial: Trial, outcome: Outcome) -> None:
        """Note how long after the fault, or its consequence, its first message arrived."""
        if not self.events or not outcome.struck_s:
            return
        since_s = outcome.struck_s[0]
        lines = trial.observer.lines()
        caused = [line.received_s for line in lines if line.entry.state in self.causes]
        if caused:  # what is counted only after the suite's end was done before
            since_s = next((at_s for at_s in caused if at_s >= since_s), caused[0])
        after_s = round(trial.message_s(self.events, since_s), 1)
        outcome.extra.append(("message", after_s, "s", MESSAGE_S))


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Store the outcome next to the trial, for a table of trials of several days."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(outcome), indent=2) + "\n"
    (folder / "outcome.json").write_text(text, encoding="utf-8")


def read_outcomes(folder: Path) -> dict[str, Outcome]:
    """Read all stored outcomes, by name."""
    outcomes = {}
    for path in sorted(folder.glob("*/outcome.json")):
        outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        outcomes[outcome.name] = outcome
    return outcomes
