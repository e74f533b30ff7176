"""What this meter can resolve in these hours: the smallest detectable change by workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from contract import schema
from contract.errors import AgentError
from contract.plan import TargetDocument, WorkloadEntry
from controller.target.doctor.diagnosis import Finding, Scene, not_made, passed, split, warned
from controller.target.doctor.noise import detectable_change

Key = tuple[str, str, str]
# Where no earlier suite tells how long a workload takes.
ASSUMED_S = 60.0
AT_REST = ("idle", "video")
WAY = "fde doctor --noise measures it, in four minutes of rest and load."


def resolution(scene: Scene) -> Iterator[Finding]:
    if scene.noise is None:
        why = scene.noise_error or "How much the power scatters here was not measured."
        yield not_made(why, WAY)
        return
    try:
        rows, blocks, basis = _rows(scene)
    except AgentError as error:
        yield not_made(*split(str(error)))
        return
    unstated = [t.name for t in scene.noise.terms if t.limit is None and t.shared < 1]
    facts = {
        "source": scene.noise.source,
        "blocks": blocks,
        "blocks_from": basis,
        "changes": rows,
        "terms_not_stated": unstated,
    }
    if any(row["change"] is None for row in rows.values()):
        yield warned(f"{blocks} blocks bound nothing.", "Run at least 3.", facts)
        return
    table = ", ".join(f"{n} {100 * row['change']:.2g} %" for n, row in rows.items())
    yield passed(
        f"{blocks} blocks ({basis}) find changes from: {table} (by {scene.noise.source}; what the "
        "workloads scatter by themselves comes on top).",
        **facts,
    )


def _rows(scene: Scene) -> tuple[dict[str, dict[str, Any]], int, str]:
    """By workload seconds and the change; the number of blocks, and what it is from."""
    from controller.planning import past_durations, sizing
    from controller.planning.compiler import compile_plan
    from controller.planning.suites import at_scale, load_suite

    assert scene.noise is not None
    purpose = scene.purpose
    suite = at_scale(load_suite(purpose.suite), purpose.scale)
    target = schema.read(TargetDocument, scene.target)
    known_names = [configuration.name for configuration in target.configurations]
    chosen = [name for name in suite.configurations if name in known_names] or known_names
    plan = compile_plan(
        purpose.suite, suite, target, seed=0, blocks=purpose.blocks, configurations=chosen
    )
    known = past_durations.read_durations(scene.host.out, plan.host, plan.origin)
    blocks, basis = plan.blocks, f"suite {purpose.suite}"
    if purpose.hours is not None:
        blocks = sizing.fit(plan, known, purpose.hours).blocks
        basis = f"in {purpose.hours:g} hours"
    rows = {}
    for load in plan.workloads:
        if plan.drift_check and load.name == plan.drift_check.workload:
            continue
        seconds, assumed = _seconds(load, known.runs_s)
        noise = scene.noise.rest if load.workload_name in AT_REST else scene.noise.load
        change = detectable_change(noise, seconds, blocks, scene.noise.terms)
        rows[load.name] = {"seconds": seconds, "assumed": assumed, "change": change}
    return rows, blocks, basis


def _seconds(load: WorkloadEntry, runs_s: Mapping[Key, Sequence[float]]) -> tuple[float, bool]:
    """Return how long a run of it takes in seconds, and whether that is assumed."""
    means = [fmean(costs) for key, costs in runs_s.items() if key[0] == load.workload_name]
    if means:
        return fmean(means), False
    seconds = load.parameters.get("seconds")
    return (float(seconds), False) if seconds else (ASSUMED_S, True)
