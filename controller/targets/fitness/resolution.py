"""The check of the smallest change that a suite can detect, by workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from contract.command_results import CheckOutcome
from contract.errors import AgentError
from controller.targets.fitness.diagnosis import (
    Scene,
    not_made,
    passed,
    problem_of,
    refused,
    warned,
)
from controller.targets.fitness.noise import detectable_change

# Assumed length of a workload that no earlier suite measured.
ASSUMED_S = 60.0
AT_REST = ("idle", "video")


class Resolution(NamedTuple):
    """The length of a workload, and the smallest relative change that it can detect.

    `assumed` is true if neither the plan nor an earlier suite has the length. `change` is None if
    there are too few blocks for any bound.
    """

    seconds: float
    assumed: bool
    change: float | None


def resolution(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that each workload of the suite can detect a change, and report the smallest."""
    if scene.noise is None:
        reason = scene.noise_error or "The scatter of the power was not measured."
        remedy = "fde check --noise measures it, in four minutes of rest and load."
        yield not_made(reason, remedy)
        return
    try:
        resolutions, blocks = _compute(scene)
    except AgentError as error:
        yield replace(refused(problem_of(error)), state="not_made", facts={})
        return
    unstated = [t.name for t in scene.noise.terms if t.limit is None and t.shared < 1]
    facts = {
        "source": scene.noise.source,
        "blocks": blocks,
        "suite": scene.suite,
        "changes": {name: result._asdict() for name, result in resolutions.items()},
        "terms_not_stated": unstated,
    }
    detectable = ", ".join(
        f"{n} {100 * r.change:.2g} %" for n, r in resolutions.items() if r.change is not None
    )
    if any(result.change is None for result in resolutions.values()):
        yield warned(f"{blocks} blocks bound nothing.", "Run at least 3.", **facts)
    else:
        yield passed(
            f"{blocks} blocks of suite {scene.suite} find changes from: {detectable} (by "
            f"{scene.noise.source}; the scatter of the workloads comes on top).",
            **facts,
        )


def _compute(scene: Scene) -> tuple[dict[str, Resolution], int]:
    """Compute the resolution of each workload; return them by name, with the number of blocks."""
    from controller.planning import past_durations
    from controller.planning.compiler import compile_plan
    from controller.planning.suites import load_suite

    assert scene.noise is not None
    suite = load_suite(scene.suite)
    names = [entry.name for entry in scene.target.configurations]
    chosen = [name for name in suite.configurations if name in names] or names
    plan = compile_plan(scene.suite, suite, scene.target, seed=0, configurations=chosen)
    durations = past_durations.read_durations(scene.host.out, plan.host, plan.origin)
    resolutions = {}
    for load in plan.workloads:
        if plan.drift_check and load.name == plan.drift_check.workload:
            continue
        lengths = [
            runs_s for key, runs_s in durations.runs_s.items() if key[0] == load.workload_name
        ]
        declared_s = float(load.parameters.get("seconds") or 0)
        assumed = not (lengths or declared_s)
        seconds = fmean(map(fmean, lengths)) if lengths else declared_s or ASSUMED_S
        at_rest = load.workload_name in AT_REST
        noise = scene.noise.idle if at_rest else scene.noise.load
        change = detectable_change(noise, seconds, plan.blocks, scene.noise.terms)
        resolutions[load.name] = Resolution(seconds, assumed, change)
    return resolutions, plan.blocks
