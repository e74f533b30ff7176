"""The checks of a target before a suite.

`examine` collects facts of a target, its meters and the controller, `judge` applies the checks of
`table.TABLE`. Nothing is installed, no disk is written, no PIN is tried. `require_ready` runs
before a suite is planned, `require_following` before its agent starts, in every session.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from agent.system import sleep
from contract.command_results import CheckOutcome
from contract.errors import ControllerError
from contract.plan import TargetDocument
from controller.targets.fitness import meters, probe, step
from controller.targets.fitness import noise as noises
from controller.targets.fitness.diagnosis import (
    FIRST_SUITE,
    Check,
    Host,
    Scene,
    not_made,
    problem_of,
    refused,
)
from controller.targets.fitness.table import TABLE
from controller.targets.survey import look

# These checks do not prevent the start of a suite: the agent checks disks and assets when it needs
# them, and waits for a load to end.
_LATER = frozenset({"assets", "disks", "opal", "resolution", "load"})
AT_START = tuple(check for check in TABLE if check.code not in _LATER)

Say = Callable[[str], None]

__all__ = ["TABLE", "Scene", "examine", "judge", "require_ready"]


def examine(
    target: TargetDocument,
    out: Path,
    *,
    disks: bool = True,
    noise_s: float = 0.0,
    suite: str = FIRST_SUITE,
) -> Scene:
    """Collect the facts of a target, meters and this machine; suites go to `out`.

    With `noise_s` the power is measured at rest and under load, for that many seconds each.
    """
    answer = unreached = None
    try:
        answer = look(target, disks=disks, examine=True)
    except ControllerError as error:
        unreached = problem_of(error)
    probes = probe.probe_all(target.meters)
    scene = Scene(target, answer, unreached, examine_host(out), probes, suite=suite)
    if noise_s and answer is not None:
        try:
            scene = step_load(scene)
            scene = replace(scene, noise=noises.measure(target, noise_s))
        except ControllerError as error:
            scene = replace(scene, noise_error=str(error))
    return scene


def step_load(scene: Scene) -> Scene:
    """Add the responses of the meters that send records to a step of load of the target."""
    heard = tuple(m for m in scene.target.meters if scene.probes[m.name].stage == "done")
    return replace(scene, responses=step.measure(replace(scene.target, meters=heard)))


def examine_host(out: Path) -> Host:
    """Collect the facts of the controller; suites go to `out`."""
    existing = next(p for p in (out.absolute(), *out.absolute().parents) if p.exists())
    names = set()
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            names.add(comm.read_text(errors="replace").strip())
        except OSError:
            continue  # it has just ended
    return Host(out, sleep.read_state(), shutil.disk_usage(existing).free, frozenset(names))


def judge(scene: Scene, checks: Iterable[Check] = TABLE) -> list[CheckOutcome]:
    """Return the outcomes of every check, at least one; a check without its facts is not made."""
    outcomes = []
    for check in checks:
        if check.needs_target and scene.answer is None:
            results = [not_made("The target was not reached.")]
        else:
            problems = scene.answer.refusals if scene.answer else ()
            results = [refused(problem) for problem in problems if problem.code in check.refusals]
            results = results or list(check.judge(scene))
            results = results or [not_made(f"Not applicable: {check.about}.")]
        outcomes += [replace(outcome, code=check.code) for outcome in results]
    return outcomes


def blockers(outcomes: Iterable[CheckOutcome]) -> list[CheckOutcome]:
    """Return the outcomes that prevent the start of a suite."""
    return [outcome for outcome in outcomes if outcome.state == "fail"]


def require_ready(
    targets: Sequence[TargetDocument], out: Path, say: Say, allowed: Collection[str] = ()
) -> None:
    """Raise ControllerError with all reasons that prevent a suite on these targets.

    Call it before creating files. The checks in `allowed` may fail.
    """
    say(f"checking {', '.join(target.host for target in targets)}, meters and this machine")
    _require_none(
        (target, outcome)
        for target in targets
        for outcome in blockers(judge(examine(target, out, disks=False), AT_START))
        if outcome.code not in allowed
    )


def require_following(target: TargetDocument) -> None:
    """Step the load of a target; raise ControllerError if a meter's readings do not follow."""
    outcomes = meters.judge_responses(step.measure(target))
    _require_none((target, outcome) for outcome in blockers(outcomes))


def _require_none(failures: Iterable[tuple[TargetDocument, CheckOutcome]]) -> None:
    """Raise ControllerError with the reasons, if there are any."""
    reasons = [
        f"{target.host}: {outcome.sentence} {outcome.remedy}".strip()
        for target, outcome in failures
    ]
    if reasons:
        raise ControllerError("nothing-started", reasons=" ".join(reasons))
