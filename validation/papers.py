"""`python -m validation.papers [SUITE…]`: every experiment of the five papers, in a lab of its own.

Each suite at its scale `lab`, one after the other: planned, run, reported, verified. Prints how
long each took and what came of it, and writes build/bench/workloads.json. A suite that fails does
not keep the others from running. In the end, without the lab, what our share of the CPU time is on
this machine's own processor (`validation.papers_native`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from contract.errors import LabError
from contract.interrupts import term_interrupts
from controller.names import suite_names, unknown
from lab import lifecycle
from lab.state import REPOSITORY
from validation import bench, papers_figures, papers_native
from validation.papers_figures import Ran
from validation.scene import INVENTORY, Scene

SUITES = (
    *("paper", "access-patterns", "block-sizes", "file-ciphers", "cipher-modes"),
    "overnight",
)
# A night is sized by hours: one block of it shows that it runs.
BLOCKS = {"overnight": 1}
PLACE = REPOSITORY / "build" / "papers"
OUT = REPOSITORY / "data" / "suites"


def _plan(scene: Scene, suite: str, seed: int) -> Path:
    blocks = ["--blocks", str(BLOCKS[suite])] if suite in BLOCKS else []
    done = scene.python(
        "controller",
        *("plan", "--suite", suite, "--scale", "lab", "--seed", str(seed), *blocks),
        *("--target", str(scene.target_file), "--out", str(OUT)),
    )
    if done.returncode:
        raise LabError(f"{suite} has no plan: {done.stderr.strip()}")
    return Path(done.stdout.split()[-1])


def _measure(scene: Scene, suite_dir: Path) -> None:
    """The suite itself, its progress on the terminal. Raises LabError where it does not finish."""
    argv = [sys.executable, "-m", "controller", "run", str(suite_dir)]
    argv += ["--inventory", str(INVENTORY), "--target", str(scene.target_file)]
    done = subprocess.run(argv, env=scene.environment, cwd=REPOSITORY, check=False)
    if done.returncode:
        raise LabError(f"the run ended with {done.returncode}; its own words stand above")


def _analysis(scene: Scene, verb: str, suite_dir: Path) -> None:
    done = scene.python("analysis", verb, str(suite_dir))
    if done.returncode:
        raise LabError(f"{verb} ended with {done.returncode}: {done.stderr.strip()[-400:]}")


def ran(scene: Scene, suite: str, seed: int) -> Ran:
    """One suite to its verified report; what failed stands in the outcome's `error`."""
    start_s = time.monotonic()
    suite_dir: Path | None = None
    error = ""
    try:
        suite_dir = _plan(scene, suite, seed)
        scene.say(f"{suite}: {suite_dir}")
        steps: tuple[Callable[[], None], ...] = (
            lambda: _measure(scene, suite_dir),
            lambda: _analysis(scene, "report", suite_dir),
            lambda: _analysis(scene, "verify", suite_dir),
        )
        for step in steps:
            step()
    except (LabError, subprocess.TimeoutExpired) as failed:
        error = str(failed)
        scene.say(f"{suite}: NO END: {error}")
    took_s = time.monotonic() - start_s
    scene.say(f"{suite}: {took_s / 60:.1f} min")
    return Ran(suite, suite_dir, took_s, error)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m validation.papers", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--seed", type=int, default=1, help="of the plans")
    parser.add_argument("--dir", type=Path, default=PLACE, help="default build/papers")
    parser.add_argument("--keep-lab", action="store_true", help="do not take the lab down")
    options = parser.parse_args(arguments)
    for suite in options.suites:
        if suite not in suite_names():
            parser.error(unknown("suite", suite, suite_names()))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where all suites came to a verified report and all figures meet their targets."""
    options = _parsed(arguments)
    scene = Scene.at(options.dir.absolute())
    load_1_min = os.getloadavg()[0]
    start_s = time.monotonic()
    done: list[Ran] = []
    try:
        with term_interrupts():
            scene.ready()
            machine = scene.machine.name
            for suite in options.suites or SUITES:
                done.append(ran(scene, suite, options.seed))
    except LabError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fde: interrupted; what was measured is kept in data/suites", file=sys.stderr)
        return 130
    finally:
        if not options.keep_lab:
            lifecycle.down(scene.layout)
    rows = papers_figures.rows(done, time.monotonic() - start_s)
    print(bench.table(rows))
    for one in done:
        print(f"{one.suite}: {one.suite_dir / 'report.html' if one.suite_dir else 'no plan'}")
    print(papers_figures.write(rows, machine, load_1_min))
    native = papers_native.main([])
    return native or int(any(row["meets"] is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
