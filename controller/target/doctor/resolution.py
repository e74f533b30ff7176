"""What this meter can resolve in these hours: the smallest detectable change by workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from contract.errors import AgentError
from controller.target.doctor.diagnosis import Finding, Scene, not_made, passed, split, warned
from controller.target.doctor.noise import detectable_change

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
    from controller.planning.suites import load_suite, scaled

    assert scene.noise is not None
    purpose = scene.purpose
    suite = scaled(load_suite(purpose.suite), purpose.scale)
    configurations = [entry["name"] for entry in scene.target["configurations"]]
    chosen = [
        name for name in suite.get("configurations", configurations) if name in configurations
    ] or configurations
    plan = compile_plan(
        purpose.suite, suite, scene.target, seed=0, blocks=purpose.blocks, configurations=chosen
    )
    known = past_durations.seen(scene.host.out, plan["host"], plan["origin"])
    blocks, basis = int(plan["blocks"]), f"suite {purpose.suite}"
    if purpose.hours is not None:
        blocks = sizing.fit(plan, known, purpose.hours).blocks
        basis = f"in {purpose.hours:g} hours"
    rows = {}
    for load in plan["workloads"]:
        if plan["drift_check"] and load["name"] == plan["drift_check"]["workload"]:
            continue
        seconds, assumed = _seconds(load, known.runs_s)
        at_rest = load.get("workload", load["name"]) in AT_REST
        noise = scene.noise.rest if at_rest else scene.noise.load
        change = detectable_change(noise, seconds, blocks, scene.noise.terms)
        rows[load["name"]] = {"seconds": seconds, "assumed": assumed, "change": change}
    return rows, blocks, basis


def _seconds(load: Mapping[str, Any], runs_s: Mapping[Any, Any]) -> tuple[float, bool]:
    """How long a run of it takes, and whether that is assumed."""
    name = load.get("workload", load["name"])
    means = [fmean(costs) for key, costs in runs_s.items() if key[0] == name]
    if means:
        return fmean(means), False
    seconds = load["parameters"].get("seconds")
    return (float(seconds), False) if seconds else (ASSUMED_S, True)
