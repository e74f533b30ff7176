"""What became of the papers' suites, as figures with targets: build/bench/workloads.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.energy import trust
from analysis.suite.records import Suite
from analysis.suite.suite_folder import read
from validation import bench
from validation.bench import Figure, Row, at_least, at_most

# The target is this suite's; of the others our share is said.
OWN_SHARE_SUITES = ("paper",)
BENCH = bench.FOLDER / "workloads.json"


@dataclass(frozen=True)
class Ran:
    """One suite: its folder (None without a plan), its seconds, and what went wrong, if it did."""

    suite: str
    suite_dir: Path | None
    took_s: float
    error: str


def rows(done: Sequence[Ran], total_s: float) -> list[Row]:
    """The figures of every suite, then those over all of them."""
    found = [_row(one.suite, figure) for one in done for figure in [*counts(one), *_own(one)]]
    sound = sum(not one.error for one in done)
    overall = (
        Figure("all suites, with the lab", round(total_s / 60, 1), "min"),
        at_least("suites with a verified report", sound, "", len(done)),
    )
    return found + [_row("all suites", figure) for figure in overall]


def _row(part: str, figure: Figure) -> Row:
    return {"part": part, **asdict(figure)}


def counts(one: Ran) -> list[Figure]:
    """How long it took, and how much of what was planned came to its end."""
    found = [Figure(f"{one.suite}: time", round(one.took_s / 60, 1), "min")]
    if one.suite_dir is None:
        return [*found, at_least(f"{one.suite}: verified report", 0, "", 1)]
    plan = json.loads((one.suite_dir / "plan.json").read_text(encoding="utf-8"))
    runs = _runs(one.suite_dir)
    finished = [run for run in runs if run["status"] == "finished"]
    skipped = sum(run["status"] == "skipped" for run in runs)
    return [
        *found,
        at_least(f"{one.suite}: runs finished", len(finished), "", len(plan["runs"]) - skipped),
        Figure(f"{one.suite}: runs skipped, with a reason", skipped, ""),
        Figure(f"{one.suite}: phases measured", sum(len(run["phases"]) for run in finished), ""),
        Figure(f"{one.suite}: parts left out, with a reason", _left_out(finished), ""),
        at_least(f"{one.suite}: verified report", int(not one.error), "", 1),
    ]


def _own(one: Ran) -> list[Figure]:
    return [] if one.error or one.suite_dir is None else own_figures(one.suite, read(one.suite_dir))


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


def own_figures(suite_name: str, suite: Suite) -> list[Figure]:
    """Of every entry the phase in which our share is the largest, as the report has it."""
    found = []
    for share in trust.own_shares(suite):
        phase, worst, _ = share.worst
        said = f"{suite_name}: our own CPU share, {share.workload}, worst phase ({phase})"
        percent = round(100 * worst, 2)
        if suite_name in OWN_SHARE_SUITES:
            found.append(at_most(said, percent, "%", 100 * trust.LIMIT))
        else:
            found.append(Figure(said, percent, "%"))
    return found


def write(found: Sequence[Row], machine: str, load_1_min: float) -> Path:
    """build/bench/workloads.json, and beside it the commit and the machine."""
    bench.write(BENCH, found, machine, load_1_min)
    return BENCH
