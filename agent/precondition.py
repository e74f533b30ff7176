"""Bring the disks under test to a steady state before the first run.

The method is section 7.2 of the SNIA's Solid State Storage Performance Test Specification 2.0.2:
the range is overwritten in order in requests of 128 KiB, twice by default; then the access itself
is written in rounds of a minute until `contract.steady_state` finds the disk settled. Here the
range is the extent that all configurations share, and a discard of it replaces the specification's
purge of the whole disk: nothing outside the extent is written.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from agent.checks import smart
from agent.storage import devices, layout
from agent.storage.base import Place
from agent.storage.stack import Stack
from agent.system.command import CommandError, run
from agent.system.notify import Watchdog
from contract import steady_state
from contract.documents import LifetimeChange, PreconditionDocument, Written
from contract.errors import AgentError
from contract.files import sync_path, write_json
from contract.journal import PRECONDITIONED, PRECONDITIONING, Entry, Fact, boot_id
from contract.plan import Disk, Plan, Precondition
from workloads import fio
from workloads.base import WorkloadError

FOLDER = "precondition"
BEGUN = "begun"
# What is common to passes and rounds: fresh data, which the specification asks for, 16 in flight.
FILL = fio.Job("write", 128 * fio.KIB, 0, fsync=True, fresh=True, engine="libaio", depth=16)
ACCESSES = {
    "sequential": replace(FILL, fsync=False),
    "random": replace(FILL, pattern="randwrite", block_bytes=4 * fio.KIB, fsync=False),
}
# A disk that writes no more than this does not answer any more.
LEAST_BYTES_PER_S = 10**6
GRACE_S = 900.0


class PreconditionError(AgentError):
    """A disk could not be preconditioned."""


class Tell(Protocol):
    """Writes a line of the journal."""

    def __call__(self, state: str, *, detail: str = "", facts: Mapping[str, Fact]) -> object: ...


def all_disks(
    plan: Plan,
    suite_dir: Path,
    stack: Stack,
    entries: Iterable[Entry],
    *,
    tell: Tell,
    watchdog: Watchdog,
) -> None:
    """Precondition every disk of the plan that the journal's `entries` do not call preconditioned.

    An interrupted one begins again. Writes `precondition/<role>.json`. Raises AgentError.
    """
    if plan.precondition is None:
        return
    lines = [(e.state, e.facts.get("disk"), e.facts.get("step")) for e in entries]
    for disk in plan.disks_used:
        if any(line[:2] == (PRECONDITIONED, disk.role) for line in lines):
            continue
        with stack.below(disk) as place:
            tell(PRECONDITIONING, facts={"disk": disk.role, "step": BEGUN})
            interrupted = lines.count((PRECONDITIONING, disk.role, BEGUN))
            work = _Work(plan, disk, place, tell, watchdog)
            document = work.document(plan.precondition, interrupted)
        folder = suite_dir / FOLDER
        folder.mkdir(exist_ok=True)
        sync_path(suite_dir)
        sha256 = write_json(folder / f"{disk.role}.json", asdict(document))
        tell(PRECONDITIONED, facts={"disk": disk.role, "sha256": sha256})


@dataclass(frozen=True)
class _Work:
    """One disk, whose place is open for writing."""

    plan: Plan
    disk: Disk
    place: Place
    tell: Tell
    watchdog: Watchdog

    def document(self, spec: Precondition, interrupted: int) -> PreconditionDocument:
        """Precondition the disk and return its record."""
        started_wall, start_ns = datetime.now(UTC), time.monotonic_ns()
        name = devices.kernel_name(self.disk.by_id)
        before = smart.lifetime(name)
        outcome = layout.discard_extent(self.place)
        passes, limit_s = [], self.place.extent.size_bytes / LEAST_BYTES_PER_S
        for number in range(spec.passes):
            self._report("pass", f"pass {number + 1} of {spec.passes}")
            passes.append(self._write(FILL, f"pass {number}", limit_s))
        job = replace(ACCESSES[spec.access], seconds=spec.round_s)
        rounds: list[Written] = []
        window = None
        while len(rounds) < spec.rounds and not (window and window.steady):
            rounds.append(self._write(job, f"round {len(rounds)}", spec.round_s))
            speed = f"{rounds[-1].mib_s:.1f} MiB/s"
            self._report("round", f"round {len(rounds)} of at most {spec.rounds}, {speed}")
            window = steady_state.window([measured.mib_s for measured in rounds])
        return PreconditionDocument(
            format="fde-precondition/1",
            plan_sha256=self.plan.sha256,
            interrupted=interrupted,
            filled=tuple(passes),
            written=tuple(rounds),
            boot_id=boot_id(),
            started_wall=started_wall.isoformat(timespec="seconds"),
            t_start_ns=start_ns,
            t_end_ns=time.monotonic_ns(),
            role=self.disk.role,
            serial=self.disk.serial,
            discarded_bytes=layout.discarded_bytes(self.place, outcome),
            steady=bool(window and window.steady),
            health=LifetimeChange(before, smart.lifetime(name)),
            **vars(self.place.extent),
            **vars(spec),
        )

    def _report(self, step: str, detail: str) -> None:
        self.tell(PRECONDITIONING, detail=detail, facts={"disk": self.disk.role, "step": step})

    def _write(self, job: fio.Job, seed: str, limit_s: float) -> Written:
        """Run fio on the extent and nothing else."""
        extent = self.place.extent
        job = replace(job, offset_bytes=extent.offset_bytes, area_bytes=extent.size_bytes)
        number = zlib.crc32(f"{self.plan.seed}:{self.disk.role}:{seed}".encode()) >> 1
        argv = fio.command(Path(self.place.partition), job, number)
        self.watchdog.within(limit_s + 2 * GRACE_S)
        try:
            # Threads, so that nothing is left of fio where it is killed.
            output = run([*argv, "--thread=1"], timeout_s=limit_s + GRACE_S).out
            counts = fio.counted(output)
        except (CommandError, WorkloadError) as error:
            raise PreconditionError(
                "not-preconditioned", role=self.disk.role, by_id=self.disk.by_id, error=error
            ) from error
        return Written(int(counts.amounts["bytes"]), max(counts.seconds, 0.001))
