"""What became of the papers' suites, as figures with targets: build/bench/workloads.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.energy import trust
from analysis.suite.records import Suite
from analysis.suite.suite_folder import read
from validation import bench
from validation.bench import Figure, Row, at_least, at_most, rows_of

OWN_SHARE_SUITE = "paper"  # which has a target; of the others our share is only shown
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
    found: list[Row] = []
    for one in done:
        found += rows_of(one.suite, counts(one))
        if one.suite_dir is not None and not one.error:
            found += rows_of(one.suite, own_figures(one.suite, read(one.suite_dir)))
    sound = sum(not one.error for one in done)
    overall = (
        Figure("all suites, with the lab", round(total_s / 60, 1), "min"),
        at_least("suites with a verified report", sound, "", len(done)),
    )
    return found + rows_of("all suites", overall)


def counts(one: Ran) -> list[Figure]:
    """How long it took, and how much of what was planned came to its end."""
    found = [Figure(f"{one.suite}: time", round(one.took_s / 60, 1), "min")]
    if one.suite_dir is None:
        return [*found, at_least(f"{one.suite}: verified report", 0, "", 1)]
    plan = json.loads((one.suite_dir / "plan.json").read_text(encoding="utf-8"))
    runs = last_attempts(one.suite_dir)
    finished = [run for run in runs if run["status"] == "finished"]
    skipped = sum(run["status"] == "skipped" for run in runs)
    left_out = {(run["workload"], part["what"]) for run in finished for part in run["left_out"]}
    return [
        *found,
        at_least(f"{one.suite}: runs finished", len(finished), "", len(plan["runs"]) - skipped),
        Figure(f"{one.suite}: runs skipped, with a reason", skipped, ""),
        Figure(f"{one.suite}: phases measured", sum(len(run["phases"]) for run in finished), ""),
        Figure(f"{one.suite}: parts left out, with a reason", len(left_out), ""),
        at_least(f"{one.suite}: verified report", int(not one.error), "", 1),
    ]


def last_attempts(suite_dir: Path) -> list[dict[str, Any]]:
    """The run.json of every run's last attempt."""
    paths = sorted(suite_dir.glob("runs/*/run.json"))
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in paths
        if ".void-" not in path.parent.name
    ]


def own_figures(suite_name: str, suite: Suite) -> list[Figure]:
    """Of every entry the phase in which our share is the largest, as the report has it."""
    found = []
    for share in trust.own_shares(suite):
        phase, worst, _ = share.worst
        title = f"{suite_name}: our own CPU share, {share.workload}, worst phase ({phase})"
        percent = round(100 * worst, 2)
        if suite_name == OWN_SHARE_SUITE:
            found.append(at_most(title, percent, "%", 100 * trust.LIMIT))
        else:
            found.append(Figure(title, percent, "%"))
    return found
