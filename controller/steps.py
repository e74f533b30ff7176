"""`make testbed`: all steps in order, timed; the lab is taken down whatever happens.

Runs on the system's own Python with the standard library alone: before its second step there is no
virtual environment.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__" and not __package__:  # run as a file: the package is two folders up
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contract.interrupts import deferred_interrupts, uninterrupted
from controller.names import suite_names, unknown
from controller.testbed_figures import GB, LabMemory, figures, machine, write

LAB_STEPS = ("packages", "venv", "image", "lab", "provision", "run", "report", "verify")
STEPS = ("packages", "venv", "provision", "run", "report", "verify")


@dataclass
class Log:
    """Seconds of every step, in order; `failed` is the step that ended the line."""

    seconds: list[tuple[str, float]] = field(default_factory=list)
    failed: str = ""


class StepError(Exception):
    """A step ended with a code that is not 0; its output stands above."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 done; 1 a step failed; 130 interrupted."""
    parser = argparse.ArgumentParser(prog="make testbed", description=__doc__)
    parser.add_argument("--target", default="lab")
    parser.add_argument("--suite", default="smoke")
    parser.add_argument("--inventory", default="")
    parser.add_argument("--labs", nargs="*", default=(), help="directories of the virtual labs")
    options = parser.parse_args(arguments)
    wrong = _wrong_name(options.suite, options.inventory)
    if wrong:
        print(f"fde: {wrong}", file=sys.stderr)
        return 1
    variables = [f"TARGET={options.target}", f"SUITE={options.suite}"]
    if options.inventory:
        variables.append(f"INVENTORY={options.inventory}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    in_lab = bool(options.labs)
    build = Path(os.environ.get("FDE_BUILD", "build"))
    log, memory = Log(), LabMemory([Path(lab) / "state.json" for lab in options.labs])
    before = set(_suites())
    began_wall = time.time()
    code = _all(LAB_STEPS if in_lab else STEPS, variables, log, memory, in_lab)
    new = sorted(set(_suites()) - before)
    # Of several hosts each has a suite; their common report is in the folder of the group.
    suite_dir = next(
        (path for path in new if (path / "group.json").exists()), max(new, default=None)
    )
    print(table(log))
    if code == 0 and suite_dir is not None:
        built = _built(began_wall) if in_lab else {}
        found = figures(
            steps_s=dict(log.seconds),
            image=built.get("image"),
            kernel=built.get("kernel") if memory.machine == "uml" else None,
            boot_s=memory.boot_s,
            lab_memory_gb=memory.peak_bytes / GB if memory.peak_bytes else None,
            measuring_share=_timing(suite_dir).get("measuring_share"),
        )
        path = write(build / "bench" / "testbed.json", found, machine(memory.machine))
        print(f"figures of this run: {path}")
        (headline,) = [*suite_dir.glob("summary.csv"), *suite_dir.glob("hosts.csv")]
        print(f"headline table: {headline}")
        print(f"report: {suite_dir / 'report.html'}")
    elif code == 1:
        print(f"fde: make {log.failed} failed; see its output above.", file=sys.stderr)
    elif code == 130:
        print("fde: interrupted; what was sealed stays; run it again.", file=sys.stderr)
    return code


def _wrong_name(suite: str, inventory: str) -> str:
    """What is misspelt, told now rather than after an image has been built; empty if nothing is."""
    if suite not in suite_names():
        return unknown("suite", suite, suite_names())
    if inventory and not Path(inventory).exists():
        return unknown("inventory", inventory, map(str, sorted(Path(inventory).parent.glob("*/"))))
    return ""


def _all(
    steps: Sequence[str], variables: Sequence[str], log: Log, memory: LabMemory, in_lab: bool
) -> int:
    """Run the steps; the lab goes down in the end, also after a failure or an interruption."""
    try:
        with memory:
            for step in steps:
                run_step(step, variables, log)
        code = 0
    except StepError:
        code = 1
    except KeyboardInterrupt:
        code = 130
    if in_lab:
        try:
            run_step("lab-down", variables, log)
        except StepError:
            log.failed = log.failed or "lab-down"
            code = code or 1
        except KeyboardInterrupt:
            code = 130
    return code


def run_step(name: str, variables: Sequence[str], log: Log) -> None:
    """`make NAME`, its output streamed, its time kept. Raises StepError, KeyboardInterrupt.

    Ctrl-C reaches the step itself (it is of the same process group), which then ends in order: it
    is waited for. A SIGTERM comes here alone and is handed on.
    """
    print(f"== {name}", flush=True)
    start_ns = time.monotonic_ns()
    process = None
    try:
        with deferred_interrupts():
            process = subprocess.Popen([os.environ.get("MAKE", "make"), name, *variables])
        code = process.wait()
    except KeyboardInterrupt:
        if process:
            _let_end(process)
        raise
    finally:
        log.seconds.append((name, (time.monotonic_ns() - start_ns) / 1e9))
    if code:
        log.failed = name
        raise StepError(name)


def _let_end(process: subprocess.Popen[bytes]) -> None:
    """Wait for an interrupted step, whatever more signals come, for two minutes at most."""
    with uninterrupted():
        try:
            process.terminate()
            process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def table(log: Log) -> str:
    """Where the time went, by step; the suite's own time, the step `run` has told."""
    total_s = sum(seconds for _, seconds in log.seconds) or 1.0
    lines = ["", "where the time went", f"  {'step':<12} {'seconds':>8} {'share':>6}"]
    for name, seconds in log.seconds:
        lines.append(f"  {name:<12} {seconds:8.1f} {seconds / total_s:6.1%}")
    lines.append(f"  {'all':<12} {total_s:8.1f} {1:6.1%}")
    return "\n".join(lines)


def _suites() -> list[Path]:
    return [path for path in Path("data/suites").glob("*") if path.is_dir()]


def _timing(suite_dir: Path) -> dict[str, Any]:
    try:
        found = json.loads((suite_dir / "timing.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _built(began_wall: float) -> dict[str, dict[str, Any]]:
    """What the builds of image and kernel noted: build_s, allocated_bytes, and whether `new`."""
    asked = subprocess.run(
        [".venv/bin/python", "-m", "lab", "cached"], capture_output=True, text=True, check=False
    )
    found = {}
    for line in asked.stdout.splitlines():
        name, _, folder = line.partition(" ")
        record = Path(folder) / "build.json"
        if record.is_file():
            noted = json.loads(record.read_text(encoding="utf-8"))
            found[name] = {**noted, "new": record.stat().st_mtime > began_wall}
    return found


if __name__ == "__main__":
    sys.exit(main())
