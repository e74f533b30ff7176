"""`make testbed`: all steps in order, timed; the lab is taken down whatever happens.

Runs on the system's own Python with the standard library alone: before its second step there is no
virtual environment. Figures of the run: its time, the image's size, the lab's memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from contract import schema
from contract.interrupts import deferred_interrupts, term_interrupts, uninterrupted
from contract.names import unknown_name
from contract.places import module_command
from contract.strict_json import read_object
from controller.planning.known_names import inventories_beside, suite_names
from validation.host_load import Host
from validation.testbed_figures import GB, Build, LabMemory, LabState, figures, machine, write

# Every step in order, and what it does; those of the lab fall away without one.
STEPS = {
    "packages": "install the system packages that are missing",
    "venv": "make the Python environment",
    "image": "build the guest's image, or find it in the cache",
    "lab": "start the virtual lab",
    "provision": "prepare the target and its disks",
    "run": "measure every workload on every configuration, in blocks",
    "report": "compute the results and write the report",
    "verify": "check the suite's files and figures",
    "lab-down": "stop the virtual lab",
}
COLUMNS = 80
OF_THE_LAB = frozenset({"image", "lab", "lab-down"})
OF_MAKE = frozenset({"packages", "venv", *OF_THE_LAB})  # the others are commands of ./fde


@dataclass
class Log:
    """Seconds of every step, in order; `failed` is the step that ended the line."""

    seconds: list[tuple[str, float]] = field(default_factory=list)
    failed: str = ""


class StepError(Exception):
    """A step ended with a code that is not 0; its output stands above."""


@term_interrupts()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run all steps; 0 done, 1 a step failed, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="make testbed", description=__doc__)
    parser.add_argument("--target", default="lab")
    parser.add_argument("--suite", default="smoke")
    parser.add_argument("--inventory", default="")
    parser.add_argument("--labs", nargs="*", default=(), help="directories of the virtual labs")
    parser.add_argument("plan_options", nargs="*", help="for `fde run`, after --")
    options = parser.parse_args(arguments)
    wrong = _wrong_name(options.suite, options.inventory)
    if wrong:
        print(f"fde: {wrong}", file=sys.stderr)
        return 1
    inventory = ["--inventory", options.inventory] if options.inventory else []
    further: dict[str, list[str]] = {
        **{name: [f"TARGET={options.target}"] for name in OF_MAKE},
        "provision": inventory,
        "run": ["--suite", options.suite, "--no-report", *inventory, *options.plan_options],
    }
    in_lab = bool(options.labs)
    steps = [step for step in STEPS if in_lab or step not in OF_THE_LAB]
    try:
        host = Host.measure()
    except KeyboardInterrupt:
        print("fde: interrupted; nothing was begun.", file=sys.stderr)
        return 130
    print(textwrap.fill(host.sentence(len(options.labs), options.suite), COLUMNS), flush=True)
    build = Path(os.environ.get("FDE_BUILD", "build"))
    log, memory = Log(), LabMemory([Path(lab) / "state.json" for lab in options.labs])
    before = set(_suites())
    began_wall = time.time()
    code = _all(steps, further, log, memory)
    new = sorted(set(_suites()) - before)
    # Of several hosts each has a suite; their common report is in the folder of the group.
    suite_dir = next(
        (path for path in new if (path / "group.json").exists()), max(new, default=None)
    )
    print(table(log))
    if code == 0 and suite_dir is not None:
        builds = _read_builds(began_wall) if in_lab else {}
        rows = figures(
            steps_s=dict(log.seconds),
            image=builds.get("image"),
            kernel=builds.get("kernel") if memory.machine == "uml" else None,
            boot_s=memory.boot_s,
            lab_memory_gb=memory.peak_bytes / GB if memory.peak_bytes else None,
            measuring_share=read_object(suite_dir / "timing.json").get("measuring_share"),
        )
        where = {**machine(memory.machine), "host_busy_cpus": host.busy_cpus}
        path = write(build / "bench" / "testbed.json", rows, where)
        print(f"figures of this run: {path}")
        (headline,) = [*suite_dir.glob("summary.csv"), *suite_dir.glob("hosts.csv")]
        print(f"headline table: {headline}")
        with suppress(StepError, KeyboardInterrupt):  # the last lines are the answer
            run_step("summary", [str(suite_dir)], log)
        print(f"report: {suite_dir / 'report.html'}")
    elif code == 1:
        print(f"fde: step {log.failed} failed; see its output above.", file=sys.stderr)
    elif code == 130:
        print("fde: interrupted; what was sealed stays; run it again.", file=sys.stderr)
    return code


def _wrong_name(suite: str, inventory: str) -> str:
    """Return a sentence on a misspelt name, before an image is built; empty without one."""
    if suite not in suite_names():
        return str(unknown_name("suite", suite, suite_names()))
    if inventory and not Path(inventory).exists():
        return str(unknown_name("inventory", inventory, inventories_beside(Path(inventory))))
    return ""


def _all(
    steps: Sequence[str], further: Mapping[str, Sequence[str]], log: Log, memory: LabMemory
) -> int:
    """Run the steps; the lab goes down in the end, also after a failure or an interruption."""
    last = "lab-down"
    code = 0
    try:
        with memory:
            for number, step in enumerate(steps, 1):
                if step != last:
                    announce(number, len(steps), step)
                    with beside_guests(memory.states) if step == "run" else nullcontext():
                        run_step(step, further.get(step, ()), log)
    except StepError:
        code = 1
    except KeyboardInterrupt:
        code = 130
    if last in steps:
        announce(len(steps), len(steps), last)
        try:
            run_step(last, further[last], log)
        except StepError:
            log.failed = log.failed or last
            code = code or 1
        except KeyboardInterrupt:
            code = 130
    return code


@contextmanager
def beside_guests(states: Sequence[Path]) -> Iterator[None]:
    """Keep what is started within the context, the recorder above all, off the guests' processors.

    `states` are the state files of their labs. Where no other processor is left, nothing changes.
    """
    usable = os.sched_getaffinity(0)
    rest = usable - {LabState.from_file(path).processor for path in states}
    os.sched_setaffinity(0, rest or usable)
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


def announce(number: int, count: int, step: str) -> None:
    """Print which step of how many begins, and what it does."""
    print(f"== step {number} of {count}, {step}: {STEPS[step]}", flush=True)


def run_step(name: str, further: Sequence[str], log: Log) -> None:
    """Run a step, its output streamed, its time kept. Raises StepError, KeyboardInterrupt.

    Ctrl-C reaches the step itself (it is of the same process group), which then ends in order: it
    is waited for. A SIGTERM comes here alone and is handed on.
    """
    start_ns = time.monotonic_ns()
    process = None
    program = os.environ.get("MAKE", "make") if name in OF_MAKE else "./fde"
    try:
        with deferred_interrupts():
            process = subprocess.Popen([program, name, *further])
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
    """Return a table of the time by step."""
    total_s = sum(seconds for _, seconds in log.seconds) or 1.0
    lines = ["", "where the time went", f"  {'step':<12} {'seconds':>8} {'share':>6}"]
    for name, seconds in log.seconds:
        lines.append(f"  {name:<12} {seconds:8.1f} {seconds / total_s:6.1%}")
    lines.append(f"  {'all':<12} {total_s:8.1f} {1:6.1%}")
    return "\n".join(lines)


def _suites() -> list[Path]:
    return [path for path in Path("data/suites").glob("*") if path.is_dir()]


def _read_builds(began_wall: float) -> dict[str, Build]:
    """Return the builds of image and kernel, by name."""
    asked = subprocess.run(
        module_command("lab", "cached"), capture_output=True, text=True, check=False
    )
    builds = {}
    for line in asked.stdout.splitlines():
        name, _, folder = line.partition(" ")
        record = Path(folder) / "build.json"
        if record.is_file():
            build = schema.read(Build, json.loads(record.read_text(encoding="utf-8")))
            builds[name] = replace(build, new=record.stat().st_mtime > began_wall)
    return builds


if __name__ == "__main__":
    sys.exit(main())
