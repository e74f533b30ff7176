"""`python -m validation.papers [SUITE…]`: the suites that decide the five papers, in separate labs.

Each suite at its scale `lab`, one after the other: planned, run, reported, verified. Prints how
long each took and what came of it, and writes build/bench/workloads.json. A suite that fails does
not keep the others from running. In the end, without the lab, what our share of the CPU time is on
this machine's own processor (`validation.papers_native`). validation/papers_lab.csv keeps a row of
each suite's last verified run, for docs/papers.md.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import polars as pl

import analysis.library
from analysis.energy import run_checks
from analysis.suite.records import Suite
from analysis.suite.suite_folder import read
from contract.errors import LabError
from contract.names import unknown_name
from lab.state import REPOSITORY
from validation import bench, papers_native
from validation.bench import Figure, Row, at_least, rows_of
from validation.scene import Scene, lab_parser

# By the lab's inventory and model of disks. Of the suites that claims name only media-closed is
# missing: it needs a product that is not free; media-truecrypt is the same without it.
LABS = {
    ("lab", "hard-disks"): ("paper-2011",),
    ("lab", ""): ("block-sizes", "file-ciphers", "cipher-modes"),
    ("media", "media"): ("media-truecrypt", "media-blocks"),
}
SUITES = tuple(suite for suites in LABS.values() for suite in suites)
PLACE = REPOSITORY / "build" / "papers"
OUT = REPOSITORY / "data" / "suites"
TABLE = Path(__file__).with_name("papers_lab.csv")
INTERRUPTED = 130


@dataclass(frozen=True)
class Ran:
    """Result of one suite: its folder (None without a plan), its seconds, and the error, if any."""

    suite: str
    suite_dir: Path | None
    took_s: float
    error: str


def ran(scene: Scene, suite: str, seed: int, blocks: int | None) -> Ran:
    """Run one suite to its verified report; a failure is stored in `error`."""
    start_s = time.monotonic()
    suite_dir: Path | None = None
    error = ""
    try:
        suite_dir = scene.plan(suite, "lab", seed, OUT, blocks)
        scene.say(f"{suite}: {suite_dir}")
        argv = scene.session_argv("run", suite_dir)
        run = subprocess.run(argv, env=scene.environment, cwd=REPOSITORY, check=False)
        if run.returncode:
            raise LabError(f"the run ended with {run.returncode}: see its output above")
        for verb in ("report", "verify"):
            result = scene.python("controller", verb, str(suite_dir))
            if result.returncode:
                raise LabError(
                    f"{verb} ended with {result.returncode}: {result.stderr.strip()[-400:]}"
                )
    except (LabError, subprocess.TimeoutExpired) as failed:
        error = str(failed)
        scene.say(f"{suite}: NO END: {error}")
    took_s = time.monotonic() - start_s
    scene.say(f"{suite}: {took_s / 60:.1f} min")
    return Ran(suite, suite_dir, took_s, error)


def rows(outcomes: Sequence[Ran], total_s: float) -> list[Row]:
    """Return the figures of every suite, then those over all of them."""
    figures: list[Row] = []
    for suite_run in outcomes:
        figures += rows_of(suite_run.suite, counts(suite_run))
        if suite_run.suite_dir is not None and not suite_run.error:
            figures += rows_of(
                suite_run.suite, own_figures(suite_run.suite, read(suite_run.suite_dir))
            )
    sound = sum(not suite_run.error for suite_run in outcomes)
    overall = (
        Figure("all suites, with their labs", round(total_s / 60, 1), "min"),
        at_least("suites with a verified report", sound, "", len(outcomes)),
    )
    return figures + rows_of("all suites", overall)


def counts(suite_run: Ran) -> list[Figure]:
    """Return the time of a suite, and how much of its plan was finished."""
    figures = [Figure(f"{suite_run.suite}: time", round(suite_run.took_s / 60, 1), "min")]
    if suite_run.suite_dir is None:
        return [*figures, at_least(f"{suite_run.suite}: verified report", 0, "", 1)]
    plan = json.loads((suite_run.suite_dir / "plan.json").read_text(encoding="utf-8"))
    runs = last_attempts(suite_run.suite_dir)
    finished = [run for run in runs if run["status"] == "finished"]
    skipped = sum(run["status"] == "skipped" for run in runs)
    left_out = {(run["workload"], part["what"]) for run in finished for part in run["left_out"]}
    return [
        *figures,
        at_least(
            f"{suite_run.suite}: runs finished", len(finished), "", len(plan["runs"]) - skipped
        ),
        Figure(f"{suite_run.suite}: runs skipped, with a reason", skipped, ""),
        Figure(
            f"{suite_run.suite}: phases measured", sum(len(run["phases"]) for run in finished), ""
        ),
        Figure(f"{suite_run.suite}: parts left out, with a reason", len(left_out), ""),
        at_least(f"{suite_run.suite}: verified report", int(not suite_run.error), "", 1),
    ]


def last_attempts(suite_dir: Path) -> list[dict[str, Any]]:
    """Return the run.json of every run's last attempt."""
    paths = sorted(suite_dir.glob("runs/*/run.json"))
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in paths
        if ".void-" not in path.parent.name
    ]


def own_figures(suite_name: str, suite: Suite) -> list[Figure]:
    """Return the largest own share of each entry's phases, as in the report.

    It has no target: in the lab it is not what it costs on a target.
    """
    figures = []
    by_workload: dict[str, list[run_checks.OwnShare]] = {}
    for phase_share in run_checks.own_shares(suite):
        by_workload.setdefault(phase_share.workload, []).append(phase_share)
    for workload, shares in by_workload.items():
        worst = max(shares, key=lambda share: share.share)
        title = f"{suite_name}: our own CPU share, {workload}, worst phase ({worst.phase})"
        figures.append(Figure(title, round(100 * worst.share, 2), "%"))
    return figures


@dataclass(frozen=True)
class LabRow:
    """What a suite's run at the scale `lab` gave: a row of docs/papers.md.

    `runs` and `phases` are those that were finished; the numbers of claims are by their verdict,
    `figures` are published ones with a counterpart, `comparable` those under the same conditions.
    """

    suite: str
    blocks: int
    runs: int
    phases: int
    minutes: float
    agree: int
    disagree: int
    open: int
    not_comparable: int
    figures: int
    comparable: int
    day: str


def lab_row(suite_run: Ran) -> LabRow:
    """Return the row of a suite with a verified report."""
    assert suite_run.suite_dir is not None
    suite = analysis.library.Suite.open(suite_run.suite_dir)
    finished = [run for run in last_attempts(suite_run.suite_dir) if run["status"] == "finished"]
    claims = suite.claims().unique(["paper", "place", "claim"])
    verdicts = Counter(claims["verdict"].to_list())
    others = ("agrees with the model", "open", "not comparable")
    agree, still_open, not_comparable = (verdicts[name] for name in others)
    figures = suite.published()
    return LabRow(
        suite_run.suite,
        suite.results.suite.plan.blocks,
        len(finished),
        sum(len(run["phases"]) for run in finished),
        round(suite_run.took_s / 60, 1),
        agree,
        verdicts.total() - agree - still_open - not_comparable,
        still_open,
        not_comparable,
        figures.height,
        figures.filter(pl.col("verdict") != "not comparable").height,
        time.strftime("%Y-%m-%d"),
    )


def record(row: LabRow) -> None:
    """Write a suite's row into the table, in place of its last one."""
    table = {row.suite: {name: str(value) for name, value in asdict(row).items()}}
    if TABLE.exists():
        with TABLE.open(encoding="utf-8", newline="") as file:
            table = {entry["suite"]: entry for entry in csv.DictReader(file)} | table
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        names = [field.name for field in fields(LabRow)]
        written = csv.DictWriter(file, names, lineterminator="\n")
        written.writeheader()
        written.writerows(table[suite] for suite in SUITES if suite in table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all suites have a verified report, and no figure misses more than allowed."""
    parser = lab_parser("validation.papers", __doc__, PLACE)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--blocks", type=int, help="of every suite, instead of its usual number")
    options = parser.parse_args(arguments)
    for suite in options.suites:
        if suite not in SUITES:
            parser.error(str(unknown_name("suite", suite, SUITES)))
    load_1_min = os.getloadavg()[0]
    start_s = time.monotonic()
    outcomes: list[Ran] = []
    machines: set[str] = set()
    status = 0
    for (inventory, disks), suites in LABS.items():
        chosen = [suite for suite in suites if suite in (options.suites or SUITES)]
        scene = Scene.at(options.dir.absolute() / (disks or "lab"), inventory, disks)

        def work(scene: Scene = scene, chosen: Sequence[str] = chosen) -> int:
            scene.ready()
            machines.add(scene.machine.name)
            for suite in chosen:
                outcomes.append(ran(scene, suite, options.seed, options.blocks))
                if not outcomes[-1].error:
                    record(lab_row(outcomes[-1]))
            return 0

        if chosen and (ended := scene.run(work, options.keep_lab, OUT)):
            status = ended
            if ended == INTERRUPTED:
                return ended
    figures = rows(outcomes, time.monotonic() - start_s)
    print(bench.table(figures))
    for suite_run in outcomes:
        folder = suite_run.suite_dir
        print(f"{suite_run.suite}: {folder / 'report.html' if folder else 'no plan'}")
    bench.write(papers_native.BENCH, figures, ", ".join(machines), load_1_min)
    print(papers_native.BENCH)
    return status or papers_native.main([]) or int(bench.missed(figures))


if __name__ == "__main__":
    sys.exit(main())
