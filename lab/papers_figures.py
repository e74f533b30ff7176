"""What became of the papers' suites, as figures with targets: build/bench/workloads.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab import bench
from lab.bench import Figure, Row, at_least, at_most

# Our own CPU time in what is measured, as a share of all that was busy. The target is the paper's
# suite's; of the others it is said.
OWN_SHARE = 0.01
OWN_SHARE_SUITES = ("paper",)
# Where the processors rest there is no busy time worth a share: the time itself stands in.
AT_REST = 0.02
BENCH = bench.FOLDER / "workloads.json"
SUBJECT = "none: the virtual lab on this machine, under emulation"


@dataclass(frozen=True)
class Ran:
    """One suite: its folder (None without a plan), its seconds, and what went wrong, if it did."""

    suite: str
    suite_dir: Path | None
    took_s: float
    error: str


def rows(done: Sequence[Ran], total_s: float) -> list[Row]:
    """The figures of every suite, then those over all of them."""
    found = [_row(one.suite, figure) for one in done for figure in _figures(one)]
    sound = sum(not one.error for one in done)
    overall = (
        Figure("all suites, with the lab", round(total_s / 60, 1), "min"),
        at_least("suites with a verified report", sound, "", len(done)),
    )
    return found + [_row("all suites", figure) for figure in overall]


def _row(part: str, figure: Figure) -> Row:
    return {"part": part, **asdict(figure)}


def _figures(one: Ran) -> list[Figure]:
    found = [Figure(f"{one.suite}: time", round(one.took_s / 60, 1), "min")]
    if one.suite_dir is None:
        return [*found, at_least(f"{one.suite}: verified report", 0, "", 1)]
    plan = json.loads((one.suite_dir / "plan.json").read_text(encoding="utf-8"))
    runs = _runs(one.suite_dir)
    finished = [run for run in runs if run["status"] == "finished"]
    skipped = sum(run["status"] == "skipped" for run in runs)
    found += [
        at_least(f"{one.suite}: runs finished", len(finished), "", len(plan["runs"]) - skipped),
        Figure(f"{one.suite}: runs skipped, with a reason", skipped, ""),
        Figure(f"{one.suite}: phases measured", sum(len(run["phases"]) for run in finished), ""),
        Figure(f"{one.suite}: parts left out, with a reason", _left_out(finished), ""),
        at_least(f"{one.suite}: verified report", int(not one.error), "", 1),
    ]
    limit = OWN_SHARE if one.suite in OWN_SHARE_SUITES else None
    return found + _own_shares(one.suite, finished, limit)


def _runs(suite_dir: Path) -> list[dict[str, Any]]:
    """The last try of every run."""
    paths = sorted(suite_dir.glob("runs/*/run.json"))
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in paths
        if ".void-" not in path.parent.name
    ]


def _left_out(runs: Sequence[dict[str, Any]]) -> int:
    return len({(run["workload"], part["what"]) for run in runs for part in run["left_out"]})


def _own_shares(suite: str, runs: Sequence[dict[str, Any]], limit: float | None) -> list[Figure]:
    """Per workload, over all its phases but the tail; the tail rests and is the agent's own."""
    found = []
    for name in sorted({run["workload"] for run in runs}):
        phases = [
            phase
            for run in runs
            if run["workload"] == name
            for phase in run["phases"]
            if phase["name"] != "tail"
        ]
        percent = round(100 * own_share(phases), 2)
        said = f"{suite}: our own CPU share, {name}"
        if limit is None:
            found.append(Figure(said, percent, "%"))
        else:
            found.append(at_most(said, percent, "%", 100 * limit))
    return found


def own_share(phases: Sequence[dict[str, Any]]) -> float:
    """The agent's part of the processors' busy time, or of the time where they rest."""
    own_s = sum(phase["own_cpu_s"] for phase in phases)
    busy_s = sum(phase["cpu_busy_s"] for phase in phases)
    length_s = sum(phase["t_end_ns"] - phase["t_start_ns"] for phase in phases) / 1e9
    if not length_s:
        return 0.0
    return own_s / (busy_s if busy_s > AT_REST * length_s else length_s)


def write(found: Sequence[Row], load_1_min: float) -> Path:
    """build/bench/workloads.json, and beside it the commit and the machine."""
    bench.write(BENCH, found, SUBJECT, load_1_min)
    return BENCH
