"""The list of checks that `fde check` and `fde doctor` share, and the page that both print.

`examine` asks a target, its meters and the controller, `judge` applies the checks of `table.TABLE`;
nothing is installed, no disk is written, no PIN is tried. `require_ready` is what a suite starts
with.
"""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.system import sleep
from contract.command_results import CheckOutcome, CheckResult, HostChecks
from contract.errors import ControllerError
from contract.plan import TargetDocument
from controller.targets import connection, playbook
from controller.targets.doctor import noise as noises
from controller.targets.doctor import probe
from controller.targets.doctor.diagnosis import (
    FIRST_SUITE,
    Check,
    Host,
    Scene,
    not_made,
    passed,
    problem_of,
    refused,
)
from controller.targets.doctor.table import TABLE
from controller.targets.power_return import return_power
from controller.targets.survey import look

WIDTH = 110
LABEL = 25
MARKS = {"pass": "pass", "warn": "warn", "fail": "FAIL", "not_made": "  - "}
# A suite is started whatever these find: the agent looks at disks and assets when it needs them,
# and waits for a load to end.
_LATER = frozenset({"assets", "disks", "opal", "resolution", "load"})
AT_START = tuple(check for check in TABLE if check.code not in _LATER)

Say = Callable[[str], None]

__all__ = ["TABLE", "Scene", "check_hosts", "examine", "judge", "require_ready", "run"]


def examine(
    target: TargetDocument,
    out: Path,
    *,
    disks: bool = True,
    noise_s: float = 0.0,
    suite: str = FIRST_SUITE,
) -> Scene:
    """Ask a target, its meters and this machine; suites go to `out`.

    With `noise_s` rest and load of so many seconds each are measured.
    """
    answer = unreached = None
    try:
        answer = look(target, disks=disks, examine=True)
    except ControllerError as error:
        unreached = problem_of(error)
    probes = probe.probe_all(target.meters)
    noise, why = None, ""
    if noise_s and answer is not None:
        try:
            noise = noises.measure(target, noise_s)
        except ControllerError as error:
            why = str(error)
    return Scene(target, answer, unreached, look_here(out), probes, noise, why, suite)


def look_here(out: Path, root: Path = Path("/")) -> Host:
    """Look at the controller; suites go to `out`."""
    existing = next(p for p in (out.absolute(), *out.absolute().parents) if p.exists())
    names = set()
    for comm in (root / "proc").glob("[0-9]*/comm"):
        try:
            names.add(comm.read_text(errors="replace").strip())
        except OSError:
            continue  # it has just ended
    free = shutil.disk_usage(existing).free
    state = sleep.read_state(root)
    return Host(out, state, free, frozenset(names), root)


def judge(scene: Scene, checks: Iterable[Check] = TABLE) -> list[CheckOutcome]:
    """Return one or more outcomes of every check; without anything to look at it is not made."""
    outcomes = []
    for check in checks:
        if check.needs_target and scene.answer is None:
            results = [not_made("not-reached")]
        else:
            results = list(check.judge(scene)) or [not_made("not-applicable", about=check.about)]
        outcomes += [replace(outcome, code=check.code) for outcome in results]
    return outcomes


def blockers(outcomes: Iterable[CheckOutcome]) -> list[CheckOutcome]:
    """Return the outcomes with which no suite starts."""
    return [outcome for outcome in outcomes if outcome.state == "fail"]


def require_ready(targets: Sequence[TargetDocument], out: Path, say: Say) -> None:
    """Require that a suite may be started on these targets; called before anything is created.

    One that was left off is switched on. Raises ControllerError with every reason why not.
    """
    for target in targets:
        return_power(target, partial(_answers, target), say)
    reasons = [
        f"{target.host}: {outcome.sentence} {outcome.remedy}".strip()
        for target in targets
        for outcome in blockers(judge(examine(target, out, disks=False), AT_START))
    ]
    if reasons:
        raise ControllerError("nothing-started", reasons=" ".join(reasons))


def _answers(target: TargetDocument) -> bool:
    return connection.run(target, ["true"]).returncode == 0


def check_hosts(
    path: Path, out: Path, say: Say, *, noise_s: float = 0.0, suite: str = FIRST_SUITE
) -> Iterator[tuple[HostChecks, Scene | None]]:
    """Check and print every host of an inventory; the scene is None of one that was refused.

    Raises ControllerError where the inventory cannot be read at all.
    """
    inventory = playbook.resolve(path)
    for name, problems in inventory.refused.items():
        outcomes = [replace(refused(each), code="inventory") for each in problems]
        print_outcomes(f"{name}, which was not asked", outcomes, say)
        yield HostChecks(name, False, tuple(outcomes)), None
    for target in inventory.targets:
        try:
            return_power(target, partial(_answers, target), say, is_stopped=lambda: True)
        except ControllerError as error:
            say(str(error))
        scene = examine(target, out, noise_s=noise_s, suite=suite)
        outcomes = [replace(passed("in-order"), code="inventory"), *judge(scene)]
        print_outcomes(f"{target.host} = {connection.link(target)}", outcomes, say)
        disks = scene.answer.disks if scene.answer else ()
        yield HostChecks(target.host, not blockers(outcomes), tuple(outcomes), disks), scene


def run(
    path: Path, out: Path, say: Say, *, noise_s: float = 0.0, suite: str = FIRST_SUITE
) -> CheckResult:
    """Check every host of an inventory; raises ControllerError where it cannot be read at all."""
    pages = check_hosts(path, out, say, noise_s=noise_s, suite=suite)
    hosts = tuple(host for host, _ in pages)
    return CheckResult(all(host.ok for host in hosts), str(path), hosts)


def print_outcomes(title: str, outcomes: Sequence[CheckOutcome], say: Say) -> None:
    """Print a line for each outcome, its remedy below, and the counts."""
    say(f"\nCHECKS  {title}\n")
    for outcome in outcomes:
        print_wrapped(f"  {MARKS[outcome.state]}  {outcome.code}", outcome.sentence, say)
        if outcome.remedy:
            print_wrapped("", f"→ {outcome.remedy}", say)
    count = Counter(outcome.state for outcome in outcomes)
    say(
        f"\n{count['fail']} failed, {count['warn']} warnings, {count['pass']} passed, "
        f"{count['not_made']} not checked."
    )


def print_wrapped(label: str, text: str, say: Say) -> None:
    """Print a label and a text beside it, wrapped."""
    lines = textwrap.wrap(text, WIDTH - LABEL, break_long_words=False, break_on_hyphens=False)
    for line in lines or [""]:
        say(f"{label:<{LABEL}}{line}".rstrip())
        label = ""
