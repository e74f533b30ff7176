"""What this meter can resolve in these hours: the smallest detectable change by workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from contract.command_results import CheckOutcome
from contract.errors import AgentError
from contract.plan import WorkloadEntry
from controller.target.doctor.diagnosis import Scene, not_made, passed, problem_of, warned
from controller.target.doctor.noise import detectable_change

Key = tuple[str, str, str]
# Where no earlier suite shows how long a workload takes.
ASSUMED_S = 60.0
AT_REST = ("idle", "video")
REMEDY = "fde doctor --noise measures it, in four minutes of rest and load."


class Resolution(NamedTuple):
    """Length of a workload (`assumed` without an earlier suite), and the change it resolves.

    `change` is relative; None where the blocks bound nothing.
    """

    seconds: float
    assumed: bool
    change: float | None


def resolution(scene: Scene) -> Iterator[CheckOutcome]:
    """Compute the smallest change that each workload of the purpose's suite resolves."""
    if scene.noise is None:
        yield not_made(scene.noise_error or "The scatter of the power was not measured.", REMEDY)
        return
    try:
        resolutions, blocks, basis = _compute(scene)
    except AgentError as error:
        problem = problem_of(error)
        yield not_made(problem.sentence, problem.remedy)
        return
    unstated = [t.name for t in scene.noise.terms if t.limit is None and t.shared < 1]
    facts = {
        "source": scene.noise.source,
        "blocks": blocks,
        "blocks_from": basis,
        "changes": {name: each._asdict() for name, each in resolutions.items()},
        "terms_not_stated": unstated,
    }
    changes = [
        f"{n} {100 * r.change:.2g} %" for n, r in resolutions.items() if r.change is not None
    ]
    if len(changes) < len(resolutions):
        yield warned(f"{blocks} blocks bound nothing.", "Run at least 3.", **facts)
        return
    yield passed(
        f"{blocks} blocks ({basis}) find changes from: {', '.join(changes)} (by "
        f"{scene.noise.source}; the scatter of the workloads comes on top).",
        **facts,
    )


def _compute(scene: Scene) -> tuple[dict[str, Resolution], int, str]:
    """Return resolutions by workload, the number of blocks, and the basis of that number."""
    from controller.planning import past_durations, sizing
    from controller.planning.compiler import compile_plan
    from controller.planning.suites import at_scale, load_suite

    assert scene.noise is not None
    purpose = scene.purpose
    suite = at_scale(load_suite(purpose.suite), purpose.scale)
    names = [entry.name for entry in scene.target.configurations]
    chosen = [name for name in suite.configurations if name in names] or names
    plan = compile_plan(
        purpose.suite, suite, scene.target, seed=0, blocks=purpose.blocks, configurations=chosen
    )
    known = past_durations.read_durations(scene.host.out, plan.host, plan.origin)
    blocks, basis = plan.blocks, f"suite {purpose.suite}"
    if purpose.hours is not None:
        blocks = sizing.fit(plan, known, purpose.hours).blocks
        basis = f"in {purpose.hours:g} hours"
    resolutions = {}
    for load in plan.workloads:
        if plan.drift_check and load.name == plan.drift_check.workload:
            continue
        seconds, assumed = _length_s(load, known.runs_s)
        at_rest = load.workload_name in AT_REST
        noise = scene.noise.rest if at_rest else scene.noise.load
        change = detectable_change(noise, seconds, blocks, scene.noise.terms)
        resolutions[load.name] = Resolution(seconds, assumed, change)
    return resolutions, blocks, basis


def _length_s(load: WorkloadEntry, runs_s: Mapping[Key, Sequence[float]]) -> tuple[float, bool]:
    """Return the length of a run of the workload, and whether it is assumed."""
    means = [fmean(costs) for key, costs in runs_s.items() if key[0] == load.workload_name]
    if means:
        return fmean(means), False
    seconds = load.parameters.get("seconds")
    return (float(seconds), False) if seconds else (ASSUMED_S, True)
