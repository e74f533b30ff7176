"""`make testbed`: run all steps in order, timed; the lab is always stopped at the end.

Runs on the system's Python with only the standard library: before its second step there is no
virtual environment. Times, sizes and memory of the run are written to build/bench/testbed.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from contract import schema
from contract.errors import LabError
from contract.interrupts import deferred_interrupts, term_interrupts, uninterrupted
from contract.names import unknown_name
from contract.strict_json import read_object
from controller.planning.known_names import inventories_beside, suite_names
from lab import image
from validation.host_load import Host
from validation.testbed_figures import GB, Build, LabMemory, LabState, figures, machine, write


@dataclass(frozen=True)
class Step:
    """A step's text, and its seconds on two quiet processors."""

    text: str
    seconds: float


# Measured on 2026-11-28 with the suite smoke and everything in the caches, in the steps' order.
STEPS = {
    "packages": Step("install missing system packages", 1),
    "venv": Step("make the Python environment", 1),
    "image": Step("find the guest's image", 1),
    "lab": Step("start the virtual lab", 4),
    "provision": Step("prepare the target and its disks", 13),
    "run": Step("measure", 420),
    "report": Step("compute the results and write the report", 5),
    "verify": Step("check every figure against the raw data", 4),
    "lab-down": Step("stop the virtual lab", 1),
}
# The same without the Python environment, and without the image in the cache.
NEW_VENV = Step("make the Python environment", 60)
NEW_IMAGE = Step("build the guest's image", 150)
# How many times as long it took next to two busy loops.
BUSY_FACTOR = 1.4
COLUMNS = 80
OF_THE_LAB = frozenset({"image", "lab", "lab-down"})
OF_MAKE = frozenset({"packages", "venv", *OF_THE_LAB})  # the others are commands of ./fde
# Their output is printed only if they fail; on real hardware provisioning asks questions.
QUIET = frozenset({"venv", "image", "lab", "provision", "report", "verify", "lab-down"})
QUIET_ON_HARDWARE = QUIET - {"provision"}


@dataclass
class Log:
    """Seconds of every step, in order; `failed` is the step that ended the line."""

    began_s: float = field(default_factory=time.monotonic)
    seconds: list[tuple[str, float]] = field(default_factory=list)
    failed: str = ""

    def clock(self) -> str:
        """Return the time since the start as m:ss."""
        minutes, seconds = divmod(int(time.monotonic() - self.began_s), 60)
        return f"{minutes:2d}:{seconds:02d}"


@dataclass(frozen=True)
class Forecast:
    """Expected duration of the remaining steps; unknown for suites other than smoke."""

    steps: Mapping[str, Step]
    factor: float = 1.0
    is_known: bool = True

    def minutes_left(self, step: str) -> str:
        """Return about how many minutes are left when a step begins; empty if unknown."""
        names = list(self.steps)
        left_s = sum(self.steps[name].seconds for name in names[names.index(step) :])
        if not self.is_known:
            return ""
        minutes = self.factor * left_s / 60
        return f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"


class StepError(Exception):
    """A step ended with a code other than 0; its output was printed."""


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
    try:
        host = Host.measure()
    except KeyboardInterrupt:
        print("fde: interrupted; nothing was begun.", file=sys.stderr)
        return 130
    forecast = _forecast(host, options.suite, len(options.labs))
    print(_opening(host, forecast, len(options.labs)), flush=True)
    build = Path(os.environ.get("FDE_BUILD", "build"))
    log, memory = Log(), LabMemory([Path(lab) / "state.json" for lab in options.labs])
    before = set(_suites())
    began_wall = time.time()
    code = _all(forecast, further, log, memory)
    new = sorted(set(_suites()) - before)
    # Of several hosts each has a suite; their common report is in the folder of the group.
    suite_dir = next(
        (path for path in new if (path / "group.json").exists()), max(new, default=None)
    )
    if code == 0 and suite_dir is not None:
        rows = figures(
            steps_s=dict(log.seconds),
            image=_image(began_wall) if in_lab else None,
            boot_s=memory.boot_s,
            lab_memory_gb=memory.peak_bytes / GB if memory.peak_bytes else None,
            measuring_share=read_object(suite_dir / "timing.json").get("measuring_share"),
        )
        where = {**machine(memory.machine), "host_busy_cpus": host.busy_cpus}
        write(build / "bench" / "testbed.json", rows, {**where, "steps_s": dict(log.seconds)})
        print(f"{log.clock()}  finished\n", flush=True)
        with suppress(StepError, KeyboardInterrupt):
            run_step("summary", [str(suite_dir)], log)
        print(f"\nReport: {(suite_dir / 'report.html').absolute().as_uri()}")
    elif code == 1:
        print(f"fde: step {log.failed} failed; see its output above.", file=sys.stderr)
    elif code == 130:
        print("fde: interrupted; what was sealed stays; run it again.", file=sys.stderr)
    return code


def _forecast(host: Host, suite: str, labs: int) -> Forecast:
    steps = {name: step for name, step in STEPS.items() if labs or name not in OF_THE_LAB}
    if not Path(".venv/bin/python").exists():
        steps["venv"] = NEW_VENV
    if labs and _new_image():
        steps["image"] = NEW_IMAGE
    factor = BUSY_FACTOR if host.busy_sentence(labs) else 1.0
    return Forecast(steps, factor, is_known=(labs, suite) == (1, "smoke"))


def _new_image() -> bool:
    """Return whether the guest's image is not in the cache; its step reports any error."""
    try:
        return not image.location().directory.exists()
    except LabError:
        return True


def _opening(host: Host, forecast: Forecast, labs: int) -> str:
    """Return the first lines: the steps' duration and its reasons, in `COLUMNS` columns."""
    minutes = forecast.minutes_left(next(iter(forecast.steps))).removesuffix(" left")
    new_parts = [
        text
        for name, step, text in (
            ("venv", NEW_VENV, "the Python environment"),
            ("image", NEW_IMAGE, "the guest's image"),
        )
        if forecast.steps.get(name) is step
    ]
    sentences = ["From nothing to a report" + f", in {minutes}" * bool(minutes) + "."]
    sentences += [f"This first time {' and '.join(new_parts)} must be made."] * bool(new_parts)
    if busy := host.busy_sentence(labs):
        sentences.append(f"{busy} Times are longer and intervals wider for it.")
    return textwrap.fill(" ".join(sentences), COLUMNS)


def _wrong_name(suite: str, inventory: str) -> str:
    """Return a sentence on a misspelt name, before an image is built; empty without one."""
    if suite not in suite_names():
        return str(unknown_name("suite", suite, suite_names()))
    if inventory and not Path(inventory).exists():
        return str(unknown_name("inventory", inventory, inventories_beside(Path(inventory))))
    return ""


def _all(
    forecast: Forecast, further: Mapping[str, Sequence[str]], log: Log, memory: LabMemory
) -> int:
    """Run the steps; the lab is stopped in the end, also after a failure or an interruption."""
    last = "lab-down"
    steps = forecast.steps
    quiet = QUIET if last in steps else QUIET_ON_HARDWARE
    code = 0
    try:
        with memory:
            for step in steps:
                if step != last:
                    announce(step, forecast, log)
                    with beside_guests(memory.states) if step == "run" else nullcontext():
                        run_step(step, further.get(step, ()), log, quiet=step in quiet)
    except StepError:
        code = 1
    except KeyboardInterrupt:
        code = 130
    if last in steps:
        announce(last, forecast, log)
        try:
            run_step(last, further[last], log, quiet=True)
        except StepError:
            log.failed = log.failed or last
            code = code or 1
        except KeyboardInterrupt:
            code = 130
    return code


@contextmanager
def beside_guests(states: Sequence[Path]) -> Iterator[None]:
    """Keep processes started within the context, above all the recorder, off the guests' CPUs.

    `states` are the state files of their labs. Where no other processor is left, nothing changes.
    """
    usable = os.sched_getaffinity(0)
    free_cpus = usable - {LabState.from_file(path).processor for path in states}
    os.sched_setaffinity(0, free_cpus or usable)
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


def announce(step: str, forecast: Forecast, log: Log) -> None:
    """Print the time, which step of how many begins, what it does, and the minutes left."""
    names = list(forecast.steps)
    minutes = forecast.minutes_left(step)
    number = f"{names.index(step) + 1}/{len(names)}"
    text = forecast.steps[step].text
    print(f"{log.clock()}  {number}  {text}" + f" ({minutes})" * bool(minutes), flush=True)


def run_step(name: str, further: Sequence[str], log: Log, quiet: bool = False) -> None:
    """Run a step and record its time. Raises StepError, KeyboardInterrupt.

    Its output is streamed, or if `quiet` printed only if it fails. Ctrl-C reaches the step itself
    (it is of the same process group), which then ends in order: it is waited for. A SIGTERM comes
    only here and is handed on.
    """
    start_ns = time.monotonic_ns()
    process = None
    program = os.environ.get("MAKE", "make") if name in OF_MAKE else "./fde"
    with tempfile.TemporaryFile() if quiet else nullcontext() as output:
        try:
            with deferred_interrupts():
                errors = subprocess.STDOUT if output else None
                command = [program, name, *further]
                process = subprocess.Popen(command, stdout=output, stderr=errors)
            code = process.wait()
        except KeyboardInterrupt:
            if process:
                _let_end(process)
            raise
        finally:
            log.seconds.append((name, (time.monotonic_ns() - start_ns) / 1e9))
        if code and output:
            output.seek(0)
            sys.stdout.buffer.write(output.read())
            sys.stdout.flush()
    if code:
        log.failed = name
        raise StepError(name)


def _let_end(process: subprocess.Popen[bytes]) -> None:
    """Wait for an interrupted step through further signals, for two minutes at most."""
    with uninterrupted():
        try:
            process.terminate()
            process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _suites() -> list[Path]:
    return [path for path in Path("data/suites").glob("*") if path.is_dir()]


def _image(began_wall: float) -> Build | None:
    """Return the build of the guest's image; None if it cannot be read."""
    record = image.location().directory / "build.json"
    if not record.is_file():
        return None
    build = schema.read(Build, read_object(record))
    return replace(build, new=record.stat().st_mtime > began_wall)


if __name__ == "__main__":
    sys.exit(main())
