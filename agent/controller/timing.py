"""Where the wall time of a suite went (`timing.json`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from agent.journal import Entry

NS = 1_000_000_000
FORMAT = "fde-timing/1"


def of_journal(entries: Sequence[Entry]) -> dict[str, float]:
    """Seconds in each state on the target: the time from each line to the next of the same boot.

    `switching`, `proving` and `running` count whether the run finished in the end or not; what lies
    between a run's end and the next state, or across a boot, counts nowhere.
    """
    spent = {"switching_s": 0.0, "proving_s": 0.0, "running_s": 0.0}
    for now, then in pairwise(entries):
        key = f"{now.state}_s"
        if key in spent and now.boot_id == then.boot_id:
            spent[key] += (then.t_mono_ns - now.t_mono_ns) / NS
    return spent


def of_runs(runs: Iterable[Mapping[str, Any]], settle_s: float) -> dict[str, float]:
    """Seconds of the finished runs: in measured phases, in their tails, and at rest before."""
    measured_s = tail_s = 0.0
    count = 0
    for run in runs:
        if run["status"] != "finished":
            continue
        count += 1
        for phase in run["phases"]:
            seconds = (phase["t_end_ns"] - phase["t_start_ns"]) / NS
            if phase["name"] == "tail":
                tail_s += seconds
            else:
                measured_s += seconds
    return {"phases_s": measured_s, "tail_s": tail_s, "settle_s": settle_s * count}


def summary(
    entries: Sequence[Entry],
    runs: Iterable[Mapping[str, Any]],
    settle_s: float,
    controller: Mapping[str, float],
) -> dict[str, Any]:
    """The document of timing.json. `controller` holds the controller's own steps in seconds:
    `wall_s` (everything), `start_s`, `fetch_s`.

    Measuring is the time in phases of finished runs, their tails included: the time that figures
    come from. `preparing_s` is the rest of the runs: laying out data, dropping caches,
    checks, settling.
    """
    states = of_journal(entries)
    finished = of_runs(runs, settle_s)
    measuring_s = finished["phases_s"] + finished["tail_s"]
    wall_s = controller["wall_s"]
    parts = {
        "measuring_s": measuring_s,
        "switching_s": states["switching_s"],
        "proving_s": states["proving_s"],
        "preparing_s": max(0.0, states["running_s"] - measuring_s),
        "start_s": controller.get("start_s", 0.0),
        "fetch_s": controller.get("fetch_s", 0.0),
    }
    return {
        "format": FORMAT,
        "wall_s": wall_s,
        **parts,
        "other_s": max(0.0, wall_s - sum(parts.values())),
        "settle_s": finished["settle_s"],
        "tail_s": finished["tail_s"],
        "measuring_share": measuring_s / wall_s if wall_s > 0 else 0.0,
    }
