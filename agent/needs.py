"""Room and memory that a suite's workloads need, and limits on what its disks may write.

`python3 -m agent.needs PLAN` prints the bytes that a run of each workload writes at least, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from contract import plan as plans
from contract import system_text
from contract.attempts import History
from contract.errors import AgentError
from contract.journal import PRECONDITIONED, Entry
from contract.places import command_line
from contract.plan import Disk, Plan, WorkloadEntry
from workloads import registry
from workloads.base import Needs

MEMINFO = Path("/proc/meminfo")
# What ext4 keeps for itself: inode tables 1.6 %, a journal of up to 3 % on the smallest.
FILESYSTEM_SHARE = 0.05


class NeedsError(AgentError):
    """The machine is too small for the suite, or a disk may not have that much written."""


def check(plan: Plan, scratch: Path, meminfo: Path = MEMINFO) -> None:
    """Raise NeedsError with a problem for each shortfall.

    Workloads that cannot run here, and that the plan allows to skip, are left out.
    """
    problems = list(_missing(plan))
    if not problems:
        needs = {spec.name: need for spec in plan.workloads if (need := _needs(plan, spec))}
        room_bytes = round(plan.storage.extent.size_bytes * (1 - FILESYSTEM_SHARE))
        room = _size(room_bytes)
        problems = [
            *(
                NeedsError("disk-too-small", name=name, needed=_size(need.disk_bytes), room=room)
                for name, need in needs.items()
                if need.disk_bytes > room_bytes
            ),
            *_scratch(plan, needs, scratch),
            *_memory(needs, meminfo),
        ]
    if problems:
        raise NeedsError(*problems)


def _missing(plan: Plan) -> Iterator[NeedsError]:
    """Yield workloads that cannot run here, though the plan does not allow skipping them."""
    for spec in plan.workloads:
        if plan.may_skip is None or spec.name in plan.may_skip:
            continue
        reasons: list[str] = []
        with contextlib.suppress(Exception):  # what breaks here breaks its runs, which will say so
            workload = registry.load(spec.workload_name)
            reasons = workload.requires(spec.parameters, plan.asset_paths)
        if reasons:
            skip = command_line("run", skip=spec.name)
            yield NeedsError("cannot-run", name=spec.name, reasons=" ".join(reasons), skip=skip)


def _needs(plan: Plan, spec: WorkloadEntry, *, to_run: bool = True) -> Needs | None:
    """Return the needs of a workload; None if they are unknown, or it is `to_run` and cannot."""
    try:
        workload = registry.load(spec.workload_name)
        if to_run and workload.requires(spec.parameters, plan.asset_paths):
            return None
        return workload.needs(spec.parameters, plan.asset_paths)
    except Exception:  # noqa: BLE001 - as an asset that cannot be read: its runs will say so
        return None


def _scratch(plan: Plan, needs: dict[str, Needs], scratch: Path) -> Iterator[NeedsError]:
    """Yield a problem if the scratch folder is too small for the sum over all workloads.

    Files that one leaves to later runs stay while others run. Of several sizes of the same
    workload, the largest counts.
    """
    largest: dict[str, int] = {}
    for name, need in needs.items():
        workload = plan.entries[name].workload_name
        largest[workload] = max(largest.get(workload, 0), need.scratch_bytes)
    wanted_bytes, free_bytes = sum(largest.values()), shutil.disk_usage(scratch).free
    if wanted_bytes > free_bytes:
        names = ", ".join(name for name, size_bytes in largest.items() if size_bytes)
        sizes = {"needed": _size(wanted_bytes), "free": _size(free_bytes)}
        yield NeedsError("scratch-too-small", names=names, folder=scratch, **sizes)


def _memory(needs: dict[str, Needs], meminfo: Path) -> Iterator[NeedsError]:
    lines = (line.split() for line in system_text.read(meminfo).splitlines())
    # The kB of proc_meminfo(5) are KiB.
    memory = {words[0]: int(words[1]) * 1024 for words in lines if len(words) > 1}
    available_bytes, total_bytes = memory["MemAvailable:"], memory["MemTotal:"]
    for name, need in needs.items():
        if need.memory_bytes > available_bytes:
            sizes = {"needed": _size(need.memory_bytes), "available": _size(available_bytes)}
            yield NeedsError("memory-too-small", name=name, **sizes, total=_size(total_bytes))


def _size(size_bytes: int) -> str:
    """Format a size as `1.5 GiB` or `300 MiB`."""
    gib = size_bytes / 2**30
    return f"{gib:.1f} GiB" if gib >= 1 else f"{size_bytes / 2**20:.0f} MiB"


def written_bytes(plan: Plan) -> dict[str, int]:
    """Return the bytes of the disk that a run of each workload fills; it may rewrite them.

    Workloads whose size depends on missing files are left out.
    """
    every = ((spec.name, _needs(plan, spec, to_run=False)) for spec in plan.workloads)
    return {name: needs.disk_bytes for name, needs in every if needs is not None}


def require_within_limits(
    plan: Plan,
    disks: Mapping[str, Disk],
    written: Mapping[str, int | None] | None,
    run_bytes: Mapping[str, int],
    entries: Iterable[Entry] = (),
) -> None:
    """Raise NeedsError with a problem for each disk that would pass its `max_written_bytes`.

    `disks` are the inventory's, for a plan may come from elsewhere. `written` is SMART's count of
    each disk, which a limit requires; the remaining runs by the journal's `entries` are added. If
    SMART was not asked it is None, and only the suite is counted. `run_bytes` are those of
    `written_bytes`.
    """
    entries = list(entries)
    history = History(entries)
    conditioned = {e.facts.get("disk") for e in entries if e.state == PRECONDITIONED}
    problems = []
    for role, disk in ((d.role, disks.get(d.role)) for d in plan.disks_used):
        if disk is None or disk.max_written_bytes is None:
            continue
        if (before := 0 if written is None else written.get(role)) is None:
            problems.append(NeedsError("writes-unknown", role=role, serial=disk.serial))
            continue
        carried = {used_disk.name for used_disk in plan.configurations if used_disk.disk == role}
        count = sum(
            run_bytes.get(run.workload, 0)
            for run in plan.runs
            if run.configuration in carried and not history.account(run.run_id).finished
        )
        if plan.precondition and role not in conditioned:
            count += plan.precondition.most_bytes(plan.extent)
        if before + count > disk.max_written_bytes:
            sizes = {
                "count": decimal_size(count),
                "before": decimal_size(before),
                "limit": decimal_size(disk.max_written_bytes),
            }
            problems.append(
                NeedsError("writes-beyond-limit", role=role, serial=disk.serial, **sizes)
            )
    if problems:
        raise NeedsError(*problems)


def decimal_size(count: int) -> str:
    """Format a size in decimal units, as makers state what a disk may write in its life."""
    unit, name = next(
        ((unit, name) for unit, name in ((10**12, "TB"), (10**9, "GB")) if count >= unit),
        (10**6, "MB"),
    )
    return f"{count / unit:.1f} {name}"


if __name__ == "__main__":
    print(json.dumps(written_bytes(plans.load(Path(sys.argv[1])))))
