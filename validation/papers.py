"""`python -m validation.papers [SUITE…]`: every experiment of the five papers, in a lab of its own.

Each suite at its scale `lab`, one after the other: planned, run, reported, verified. Prints how
long each took and what came of it, and writes build/bench/workloads.json. A suite that fails does
not keep the others from running. In the end, without the lab, what our share of the CPU time is on
this machine's own processor (`validation.papers_native`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from contract.errors import LabError
from controller.names import suite_names, unknown
from lab.state import REPOSITORY
from validation import bench, papers_figures, papers_native
from validation.bench import Row
from validation.papers_figures import Ran
from validation.scene import Scene, lab_parser

SUITES = ("paper", "access-patterns", "block-sizes", "file-ciphers", "cipher-modes")
PLACE = REPOSITORY / "build" / "papers"
OUT = REPOSITORY / "data" / "suites"


def ran(scene: Scene, suite: str, seed: int) -> Ran:
    """One suite to its verified report; a failure is in the outcome's `error`."""
    start_s = time.monotonic()
    suite_dir: Path | None = None
    error = ""
    try:
        suite_dir = scene.plan(suite, "lab", seed, OUT)
        scene.say(f"{suite}: {suite_dir}")
        argv = scene.session_argv("run", suite_dir)
        run = subprocess.run(argv, env=scene.environment, cwd=REPOSITORY, check=False)
        if run.returncode:
            raise LabError(f"the run ended with {run.returncode}: see its output above")
        for verb in ("report", "verify"):
            done = scene.python("controller", verb, str(suite_dir))
            if done.returncode:
                raise LabError(f"{verb} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    except (LabError, subprocess.TimeoutExpired) as failed:
        error = str(failed)
        scene.say(f"{suite}: NO END: {error}")
    took_s = time.monotonic() - start_s
    scene.say(f"{suite}: {took_s / 60:.1f} min")
    return Ran(suite, suite_dir, took_s, error)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where all suites came to a verified report and all figures meet their targets."""
    parser = lab_parser("validation.papers", __doc__, PLACE)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    options = parser.parse_args(arguments)
    for suite in options.suites:
        if suite not in suite_names():
            parser.error(unknown("suite", suite, suite_names()))
    scene = Scene.at(options.dir.absolute())
    load_1_min = os.getloadavg()[0]
    start_s = time.monotonic()
    rows: list[Row] = []

    def work() -> int:
        scene.ready()
        machine = scene.machine.name
        done = [ran(scene, suite, options.seed) for suite in options.suites or SUITES]
        rows.extend(papers_figures.rows(done, time.monotonic() - start_s))
        print(bench.table(rows))
        for one in done:
            print(f"{one.suite}: {one.suite_dir / 'report.html' if one.suite_dir else 'no plan'}")
        bench.write(papers_figures.BENCH, rows, machine, load_1_min)
        print(papers_figures.BENCH)
        return 0

    status = scene.run(work, options.keep_lab, OUT)
    return status or papers_native.main([]) or int(bench.missed(rows))


if __name__ == "__main__":
    sys.exit(main())
