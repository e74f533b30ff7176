"""`make testbed`: all steps in order, timed; the lab is taken down whatever happens.

Runs on the system's own Python with the standard library alone: before its second step there is no
virtual environment. Figures of the run: its time, the image's size, the lab's memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.interrupts import deferred_interrupts, term_interrupts, uninterrupted
from contract.names import unknown
from contract.strict_json import read_object
from controller.names import suite_names

# Every step of `make`, in order, and what it does; those of the lab fall away without one.
STEPS = {
    "packages": "install the system packages that are missing",
    "venv": "make the Python environment",
    "image": "build the guest's image, or find it in the cache",
    "lab": "start the virtual lab, whose kernel is built if not cached",
    "provision": "prepare the target and its disks",
    "run": "measure every workload on every configuration, in blocks",
    "report": "compute the results and write the report",
    "verify": "check the suite's files and figures",
    "lab-down": "stop the virtual lab",
}
COLUMNS = 80
# Suites of the four configurations that the smaller kernel has (lab/machines/kernel.py).
FIRST_SUITES = ("micro", "one-disk", "smoke")
OF_THE_LAB = frozenset({"image", "lab", "lab-down"})


@dataclass
class Log:
    """Seconds of every step, in order; `failed` is the step that ended the line."""

    seconds: list[tuple[str, float]] = field(default_factory=list)
    failed: str = ""


class StepError(Exception):
    """A step ended with a code that is not 0; its output stands above."""


@term_interrupts()
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

    if options.suite in FIRST_SUITES:
        os.environ.setdefault("LAB_KERNEL", "first")
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
    code = _all(steps, variables, log, memory)
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
            measuring_share=read_object(suite_dir / "timing.json").get("measuring_share"),
        )
        where = {**machine(memory.machine), "host_busy_cpus": host.busy_cpus}
        path = write(build / "bench" / "testbed.json", found, where)
        print(f"figures of this run: {path}")
        (headline,) = [*suite_dir.glob("summary.csv"), *suite_dir.glob("hosts.csv")]
        print(f"headline table: {headline}")
        with suppress(StepError, KeyboardInterrupt):  # the last lines are the answer
            run_step("summary", [f"SUITE_DIR={suite_dir}"], log)
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
        known = [str(path) for path in sorted(Path(inventory).parent.glob("*/"))]
        return unknown("inventory", inventory, known)
    return ""


def _all(steps: Sequence[str], variables: Sequence[str], log: Log, memory: LabMemory) -> int:
    """Run the steps; the lab goes down in the end, also after a failure or an interruption."""
    last = "lab-down"
    code = 0
    try:
        with memory:
            for number, step in enumerate(steps, 1):
                if step != last:
                    announce(number, len(steps), step)
                    with beside_guests(memory.states) if step == "run" else nullcontext():
                        run_step(step, variables, log)
    except StepError:
        code = 1
    except KeyboardInterrupt:
        code = 130
    if last in steps:
        announce(len(steps), len(steps), last)
        try:
            run_step(last, variables, log)
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
    rest = usable - {read_object(path).get("processor") for path in states}
    os.sched_setaffinity(0, rest or usable)
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


def announce(number: int, count: int, step: str) -> None:
    """Print which step of how many begins, and what it does."""
    print(f"== step {number} of {count}, {step}: {STEPS[step]}", flush=True)


def run_step(name: str, variables: Sequence[str], log: Log) -> None:
    """`make NAME`, its output streamed, its time kept. Raises StepError, KeyboardInterrupt.

    Ctrl-C reaches the step itself (it is of the same process group), which then ends in order: it
    is waited for. A SIGTERM comes here alone and is handed on.
    """
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


LOAD_WINDOW_S = 1.0
# What a lab keeps busy: a processor for its guest, and one for its drives, meter and recorder.
CPUS_OF_A_LAB = 2
# Of the processors that the labs want, so much may be taken before it is worth a warning.
QUIET_SHARE = 0.1
# `make testbed` of the suite smoke with image and kernel in the cache, on two quiet processors, and
# how many times as long it took beside two busy loops: measured on 2026-11-26, between 1.1 and 1.4.
CACHED_QUIET_MIN = 6.0
BUSY_FACTOR = 1.4


@dataclass(frozen=True)
class Host:
    """Processors that this process may use, and how many others kept busy; None: unknown."""

    cpus: int
    busy_cpus: float | None

    @classmethod
    def measure(cls, window_s: float = LOAD_WINDOW_S) -> Host:
        """From /proc/stat at both ends of a window of `window_s` seconds."""
        cpus = os.sched_getaffinity(0)
        before = cpu_ticks(cpus)
        time.sleep(window_s)
        return cls(len(cpus), busy(before, cpu_ticks(cpus), len(cpus)))

    def sentence(self, labs: int, suite: str) -> str:
        """The load, and what it means for time and result of that many labs on this host."""
        if self.busy_cpus is None:
            return "Host: how busy it is could not be read from /proc/stat."
        many = "processor is" if self.cpus == 1 else "processors are"
        load = f"Host: {self.busy_cpus:.1f} of {self.cpus} {many} busy with other work"
        wanted = min(self.cpus, labs * CPUS_OF_A_LAB)
        lacking = wanted - min(wanted, self.cpus - self.busy_cpus)
        if lacking <= QUIET_SHARE * wanted:
            return f"{load}{', which leaves enough' * bool(labs)}."
        longer = f"the suite to take up to about {BUSY_FACTOR:g} times as long"
        if (labs, suite) == (1, "smoke"):
            longer = (
                f"up to about {BUSY_FACTOR * CACHED_QUIET_MIN:.0f} min instead of about "
                f"{CACHED_QUIET_MIN:.0f} with image and kernel in the cache"
            )
        return f"{load}. Expect {longer}, and wider intervals."


def cpu_ticks(cpus: Collection[int]) -> tuple[int, int] | None:
    """Ticks that these processors have spent at work (those that a hypervisor took away counted as
    work) and in all; None where /proc/stat does not have them."""
    at_work = total = seen = 0
    try:
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cpus:
                user, nice, system, idle, waiting, *interrupts = map(int, fields[:8])
                seen += 1
                at_work += user + nice + system + sum(interrupts)
                total += user + nice + system + idle + waiting + sum(interrupts)
    except (OSError, ValueError):
        return None
    return (at_work, total) if seen == len(cpus) else None


def busy(before: tuple[int, int] | None, after: tuple[int, int] | None, cpus: int) -> float | None:
    """How many of so many processors were at work between two `cpu_ticks`; None: unknown."""
    if before is None or after is None or after[1] <= before[1]:
        return None
    share = (after[0] - before[0]) / (after[1] - before[1])
    return round(cpus * min(1.0, max(0.0, share)), 2)


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


GB = 1e9
SAMPLE_S = 2.0
# Targets: from a fresh clone to the report, the same with image and kernel in the cache, building
# each, the image's size, the lab's memory, its start, provisioning, and the share of measuring.
FRESH_MIN = 15.0
CACHED_MIN = 8.0
IMAGE_MIN = 6.0
KERNEL_MIN = 4.0
IMAGE_GB = 3.0
LAB_GB = 6.0
BOOT_S = 12.0
PROVISION_S = 25.0
MEASURING_PERCENT = 70.0


class LabMemory:
    """A context that samples the resident memory of all processes that the labs' states name.

    `peak_bytes` is the largest sum seen; pages shared by two processes count twice. `machine` is
    what the guests ran on, `boot_s` how long the slowest of them took to answer.
    """

    def __init__(self, states: Sequence[Path]) -> None:
        self.states = states
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak_bytes = 0
        self.machine = ""
        self.boot_s: float | None = None

    def __enter__(self) -> LabMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            states = [read_object(path) for path in self.states]
            for state in states:
                self.machine = state.get("machine", {}).get("name", self.machine)
                self.boot_s = max(state.get("boot_s", 0.0), self.boot_s or 0.0) or None
            now = sum(resident_bytes(pid) for state in states for pid in lab_pids(state))
            self.peak_bytes = max(self.peak_bytes, now)


def lab_pids(state: Mapping[str, Any]) -> list[int]:
    """Processes of a running lab: the guest, the drives, the meter."""
    named = [state.get("guest") or {}, *state.get("drives", {}).values()]
    named.append(state.get("meter") or {})
    return [entry["pid"] for entry in named if entry.get("pid")]


def resident_bytes(pid: int) -> int:
    """Resident set of a process; 0 if it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def figures(
    *,
    steps_s: Mapping[str, float],
    image: Mapping[str, Any] | None = None,
    kernel: Mapping[str, Any] | None = None,
    boot_s: float | None = None,
    lab_memory_gb: float | None = None,
    measuring_share: float | None = None,
) -> list[dict[str, Any]]:
    """The list of `{figure, value, unit, target, meets}`; what was not seen is left out.

    `image` and `kernel` are what their builds noted, with `new` where this run made them.
    """
    built = any(made and made["new"] for made in (image, kernel))
    name, limit = ("total", FRESH_MIN) if built else ("total, image and kernel cached", CACHED_MIN)
    found = [_at_most(name, sum(steps_s.values()) / 60, "min", limit)]
    if image is not None:
        found.append(_at_most("image build", image["build_s"] / 60, "min", IMAGE_MIN))
        found.append(_at_most("image size", image["allocated_bytes"] / GB, "GB", IMAGE_GB))
    if kernel is not None:
        found.append(_at_most("kernel build", kernel["build_s"] / 60, "min", KERNEL_MIN))
    if boot_s is not None:
        found.append(_at_most("guest up to SSH", boot_s, "s", BOOT_S))
    if "provision" in steps_s:
        found.append(_at_most("provision", steps_s["provision"], "s", PROVISION_S))
    if lab_memory_gb is not None:
        found.append(_at_most("lab memory, peak", lab_memory_gb, "GB", LAB_GB))
    if measuring_share is not None:
        share = round(100 * measuring_share, 1)
        row = _at_most("share of the suite that was measuring", share, "%", MEASURING_PERCENT)
        found.append({**row, "meets": share >= MEASURING_PERCENT})
    return found


def write(path: Path, found: Sequence[Mapping[str, Any]], where: Mapping[str, Any]) -> Path:
    """Print the table; write the list, and NAME.machine.json with commit and machine beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"\n{'figure':<40} {'value':>8} {'unit':<4} {'target':>8}  meets")
    for row in found:
        met = "yes" if row["meets"] else "no"
        print(f"{row['figure']:<40} {row['value']:8.2f} {row['unit']:<4} {row['target']:8g}  {met}")
    path.write_text(json.dumps(list(found), indent=2) + "\n", encoding="utf-8")
    beside = path.with_suffix(".machine.json")
    beside.write_text(json.dumps(where, indent=2) + "\n", encoding="utf-8")
    return path


def machine(lab_machine: str) -> dict[str, Any]:
    """Commit and machine: what a figure is worth nothing without."""
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    memory_kib = Path("/proc/meminfo").read_text(encoding="utf-8").split()[1]
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "machine": {
            "cpu": cpu[0] if cpu else platform.machine(),
            "cores": len(cpu) or os.cpu_count(),
            "memory_gb": round(int(memory_kib) * 1024 / GB, 1),
            "kernel": platform.release(),
            "system": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
            "python": platform.python_version(),
            "lab_machine": lab_machine,
        },
    }


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def _at_most(figure: str, value: float, unit: str, target: float) -> dict[str, Any]:
    return {
        "figure": figure,
        "value": round(value, 2),
        "unit": unit,
        "target": target,
        "meets": value <= target,
    }


if __name__ == "__main__":
    sys.exit(main())
