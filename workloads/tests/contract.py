"""Check the rules for every workload by running it: `python3 -m workloads.tests.contract NAME`.

Needs only the standard library, so that it can also run on a target.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract import account
from contract.block_traffic import BlockTraffic
from contract.documents import Phase
from contract.parameters import ParameterValue
from contract.strict_json import Document
from workloads import registry
from workloads.base import (
    CHECKED,
    UNITS,
    Assets,
    Context,
    Parameters,
    Work,
    Workload,
    WorkloadError,
)

FOLDERS = ("disk", "scratch", "shared", "kept")


class InjectedError(Exception):
    """The failure that a check causes on purpose."""


class Recorded(dict[str, ParameterValue]):
    """Parameters that record which of them were read."""

    def __init__(self, values: Parameters) -> None:
        super().__init__(values)
        self.used: set[str] = set()

    def __getitem__(self, key: str) -> ParameterValue:
        self.used.add(key)
        return super().__getitem__(key)


@dataclass
class Phases:
    """Records the phases of a run; fails at the end of phase number `fail_after` if that is set.

    Only `cold` really empties the page cache, which affects the whole machine. With `device`, a
    kernel name, its traffic is counted, as by the agent.
    """

    fail_after: int | None = None
    cold: bool = False
    device: str = ""
    moved: list[BlockTraffic | None] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    own_cpu_s: list[float] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    open: bool = False

    @contextmanager
    def phase(self, name: str) -> Iterator[Work]:
        assert not self.open, "phases must not be nested"
        work, self.open = Work(), True
        before = BlockTraffic.of_device(self.device) if self.device else None
        start, cpu = time.monotonic(), time.process_time()
        try:
            yield work
        finally:
            self.open = False
        self.seconds.append(time.monotonic() - start)
        self.own_cpu_s.append(time.process_time() - cpu)
        after = BlockTraffic.of_device(self.device) if self.device else None
        self.moved.append(after - before if before and after else None)
        self.names.append(name)
        self.works.append(work)
        if self.fail_after == len(self.names):
            raise InjectedError(name)

    def leave_out(self, part: str, reason: str) -> None:
        assert not self.open, "what is left out is no part of a phase"
        self.left_out.append((part, reason))

    def documents(self) -> list[Phase]:
        """Return the phases with their accounts, and the disk's if it was counted."""
        return [
            Phase(
                name,
                0,
                1,
                work=work.amounts,
                planned=work.planned,
                reported=work.reported,
                disk_bounds=work.disk_bounds if moved else {},
                disk_read_bytes=moved.read_bytes if moved else None,
                disk_written_bytes=moved.written_bytes if moved else None,
            )
            for name, work, moved in zip(self.names, self.works, self.moved, strict=True)
        ]

    def drop_caches(self) -> None:
        assert not self.open, "caches must not be dropped within a phase"
        if not self.cold:
            return
        os.sync()
        if os.access("/proc/sys/vm/drop_caches", os.W_OK):
            Path("/proc/sys/vm/drop_caches").write_text("3")


def context_for(root: Path, phases: Phases, assets: Assets, parameters: Parameters) -> Context:
    """Return a context with empty directories for disk, scratch, shared and kept below `root`."""
    folders = {name: root / name for name in FOLDERS}
    for folder in folders.values():
        folder.mkdir(parents=True)
    return Context(
        **folders,
        assets=assets,
        parameters=parameters,
        seed=7,
        phase=phases.phase,
        drop_caches=phases.drop_caches,
        leave_out=phases.leave_out,
    )


def perform(workload: Workload, context: Context) -> None:
    """Prepare, run and clean up, as the agent does."""
    try:
        workload.prepare(context)
        workload.run(context)
    finally:
        workload.cleanup(context)


def new_run(
    name: str, root: Path, assets: Assets | None = None, /, **settings: Any
) -> tuple[Context, Phases]:
    """Return the context and the phases of a run that has not begun."""
    phases = Phases()
    return context_for(root, phases, assets or {}, registry.complete(name, settings)), phases


def performed(
    name: str, root: Path, assets: Assets | None = None, /, **settings: Any
) -> tuple[Context, Phases]:
    """Run a workload with these parameters; return its context and phases."""
    context, phases = new_run(name, root, assets, **settings)
    perform(registry.load(name), context)
    return context, phases


def _callers() -> set[int]:
    """Return this process and its ancestors, whose command lines may name the folder, too.

    A shell may name the folder in the command it was given.
    """
    pid, callers = os.getpid(), set[int]()
    while pid:
        callers.add(pid)
        status = Path(f"/proc/{pid}/stat").read_text()
        pid = int(status.rpartition(")")[2].split()[1])
    return callers


def processes_using(folder: Path) -> list[str]:
    """Return the command lines of other processes that name a path below the folder."""
    users, callers = [], _callers()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in callers:
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(str(folder) in word for word in words[1:]):
                users.append(" ".join(words).strip())
    return users


def _kept_after_run(phases: Phases, recorded: Recorded, root: Path) -> list[str]:
    broken = []
    if not phases.names:
        broken.append("no phase was measured")
    if len(set(phases.names)) != len(phases.names):
        broken.append(f"phase names are not unique: {phases.names}")
    for name, work in zip(phases.names, phases.works, strict=True):
        if not any(amount > 0 for amount in work.amounts.values()):
            broken.append(f"phase {name} has no work")
        if strange := sorted(set(work.amounts) - set(UNITS)):
            broken.append(f"phase {name} counts {strange}, which no report tells joules per")
        if strange := sorted({*work.planned, *work.reported} - {*UNITS, *CHECKED}):
            broken.append(f"phase {name} plans or reports {strange}, which are no units")
    broken += [finding.message for finding in account.judge(phases.documents()) if not finding.ok]
    unused = set(recorded) - recorded.used
    if unused:
        broken.append(f"parameters are declared and not used: {sorted(unused)}")
    extra = {p.name for p in root.iterdir()} - set(FOLDERS)
    return broken + [f"{name} was left beside its folders" for name in sorted(extra)]


def check(name: str, root: Path, assets: Assets, settings: Document) -> tuple[list[str], Phases]:
    """Run a workload once whole and once per phase with a failure at its end.

    Returns the broken rules, each a sentence, and the phases of the whole run.
    """
    recorded, phases = Recorded(registry.complete(name, settings)), Phases()
    root_folder = root / "whole"
    perform(registry.load(name), context_for(root_folder, phases, assets, recorded))
    broken = _kept_after_run(phases, recorded, root_folder)
    for number, phase_name in enumerate(phases.names, start=1):
        failing = Phases(fail_after=number)
        context = context_for(root / f"failing-{number}", failing, assets, recorded)
        try:
            perform(registry.load(name), context)
        except InjectedError:
            pass
        else:
            broken.append(f"a failure after phase {phase_name} was swallowed")
    broken += [f"still running: {line}" for line in processes_using(root)]
    return broken, phases


def main() -> int:
    parser = argparse.ArgumentParser(prog="contract", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--root", type=Path, required=True, help="an empty directory for all files")
    parser.add_argument("--asset", action="append", default=[], help="NAME=PATH")
    parser.add_argument("--parameters", default="{}", help="a JSON object")
    parser.add_argument("--time-only", action="store_true", help="run once and print the phases")
    parser.add_argument("--mount-options", default="", help="those of the file system")
    parser.add_argument("--device", default="", help="kernel name of what the folder is stored on")
    options = parser.parse_args()
    assets = {key: Path(path) for key, path in (item.split("=", 1) for item in options.asset)}
    settings = json.loads(options.parameters)
    values = registry.complete(options.name, settings)
    broken = registry.load(options.name).requires(values, assets)
    phases = Phases(cold=options.time_only, device=options.device)
    start = time.monotonic()
    try:
        if not broken and options.time_only:
            perform(registry.load(options.name), context_for(options.root, phases, assets, values))
        elif not broken:
            broken, phases = check(options.name, options.root, assets, settings)
    except WorkloadError as error:
        broken.append(str(error))
    seconds = dict(zip(phases.names, phases.seconds, strict=True))
    print(
        json.dumps(
            {
                "name": options.name,
                "broken": broken,
                "phase_s": {key: round(value, 2) for key, value in seconds.items()},
                "own_cpu_s": round(sum(phases.own_cpu_s), 3),
                "work": [work.amounts for work in phases.works],
                "account": [
                    (finding.severity, finding.cause, finding.facts)
                    for finding in account.judge(phases.documents(), options.mount_options)
                    if not finding.ok
                ],
                "total_s": round(time.monotonic() - start, 2),
            }
        )
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
