"""Measure one run on an entered configuration, prove it, and write its run.json."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from agent import pack
from agent.checks import CheckContext, Inspection, Memory, blockers
from agent.marks import Marks
from agent.phase_pyrapl import PhasePyrapl
from agent.readers import OtherReaders
from agent.sampler import Sampler
from agent.storage import devices, layout, mapping, proof
from agent.storage.proof import Proof
from agent.storage.stack import Stack
from agent.storage.uses import mount_options
from agent.system.command import SLOWEST_BYTES_PER_S
from agent.system.limits import Limit, TooLong, reap
from agent.system.notify import Watchdog
from agent.system.virtual_lab import SIMULATED_RAPL
from contract import account
from contract.documents import LeftOut, OtherSource, Phase
from contract.errors import AgentError
from contract.examination import Finding
from contract.files import write_json
from contract.journal import Fact, boot_id
from contract.plan import MOST_RUN_S, Plan, Run
from instrumentation.sources.powercap import PowercapSource
from workloads import registry
from workloads.base import Context, WorkloadError

FORMAT = "fde-run/1"
# Not /tmp: that may be in memory, and scratch files would then be measured as memory traffic.
SCRATCH_ROOT = Path("/var/tmp")
SCRATCH_PREFIX = "fde-testbed-"
_SHARED_MODE = 0o711
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
# How long the watchdog lets pass: beyond a run's own limit, and for steps without a separate limit.
GRACE_S = 600.0
PROOF_S = 900.0
CHECKS_S = 8 * 3600.0


@dataclass
class Findings:
    """Data that a run has gathered so far; a void run keeps them too."""

    started_wall: str = ""
    t_start_ns: int | None = None
    t_end_ns: int | None = None
    phases: tuple[Phase, ...] = ()
    samples: Sampler | None = None
    rapl_sha256: str | None = None
    other_sources: Mapping[str, OtherSource] = field(default_factory=dict)
    proof: Proof | None = None
    inspection: Inspection | None = None
    left_out: list[LeftOut] = field(default_factory=list)


@dataclass(frozen=True)
class Fault:
    """The reason why a run is void: a sentence, and codes for programs (data/README.md)."""

    at: str
    sentence: str
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @classmethod
    def from_findings(cls, findings: list[Finding]) -> Fault | None:
        """Return the fault of checks that void the run; None without any."""
        failed = blockers(findings)
        names = " ".join(dict.fromkeys(finding.name for finding in failed))
        sentence = " ".join(finding.message for finding in failed)
        return cls("check", sentence, {"checks": names}) if failed else None


class _BlockedError(Exception):
    """A check before the run voids it."""


class Bench:
    """Measures runs of one plan; `block` is the one for which the configuration was entered."""

    def __init__(
        self,
        plan: Plan,
        suite_dir: Path,
        stack: Stack,
        counters: PowercapSource,
        watchdog: Watchdog,
    ) -> None:
        self.block: int | None = None
        self.sha256 = ""
        self._plan = plan
        self._suite_dir = suite_dir
        self._stack = stack
        self._counters = counters
        self._watchdog = watchdog
        self._others = OtherReaders(counters)
        self._shared = shared_scratch()
        self._memory = Memory()
        self._searched: set[str] = set()  # configurations whose partition was searched whole
        self._findings = Findings()

    def reasons_to_skip(self, run: Run) -> list[str]:
        """Return the reasons why configuration or workload cannot run here; empty if they can."""
        started_wall = datetime.now(UTC).isoformat(timespec="seconds")
        self._findings = Findings(started_wall=started_wall)
        try:
            if reason := self._stack.why_not(self._plan.storage.configurations[run.configuration]):
                return [reason]
            spec = self._plan.entries[run.workload]
            return registry.load(spec.workload_name).requires(
                spec.parameters, self._plan.asset_paths
            )
        except WorkloadError as error:
            return [str(error)]
        except Exception as error:  # noqa: BLE001 - as a library that cannot be loaded
            return [f"{run.workload} failed to list what it requires: {error!r}"]

    def measure(
        self, run: Run, waiting: Callable[[str, str], None], before_proof: Callable[[], None]
    ) -> Fault | None:
        """Do one run and write its run.json if it is sound; otherwise return the fault.

        `waiting` gets the name and reason of each wait before the run, and "" at its end; `sha256`
        is then that of its run.json. Raises AgentError if the storage failed, OSError if the
        results do not fit on the disk. Exceptions of the workload void the run; their traceback
        goes to `failure.txt`.
        """
        entered = self._stack.entered
        if entered is None:
            raise AgentError("no-configuration")
        findings = self._findings
        findings.inspection = Inspection(self.context(), self._memory)
        fault = self._try(run, findings.inspection, waiting)
        if findings.samples is not None:
            findings.rapl_sha256 = findings.samples.write(self._folder(run) / "rapl.jsonl")
        if fault:
            return fault
        search = run.configuration not in self._searched
        searched_bytes = layout.partition_bytes(self._plan.extent) if search else 0
        self._watchdog.within(PROOF_S + searched_bytes / SLOWEST_BYTES_PER_S)
        before_proof()
        findings.inspection.after()
        options = mount_options(self._stack.mount_point)
        settings = entered.configuration.settings
        integrity = settings.get("integrity", "none") != "none"
        journalled = integrity and not settings.get("integrity_no_journal")
        findings.inspection.findings += account.judge(
            findings.phases, options, journalled=journalled
        )
        stack = self._stack
        findings.proof = proof.prove(
            entered, stack.secrets, stack.mount_point, run.run_id, search=search
        )
        self._searched.add(run.configuration)
        fault = Fault.from_findings(findings.inspection.findings)
        if mismatches := findings.proof.mismatches:
            sentences = [fault.sentence] if fault else []
            sentences += [mismatch.sentence for mismatch in mismatches]
            causes = " ".join(dict.fromkeys(mismatch.code for mismatch in mismatches))
            facts = {**(fault.facts if fault else {}), "mismatches": causes}
            return Fault("proof", " ".join(sentences), facts)
        if fault:
            return fault
        self.sha256 = self.write(run, "finished", None)
        return None

    def context(self) -> CheckContext:
        """Return the machine as the checks look at it."""
        disks = (devices.kernel_name(disk.by_id) for disk in self._plan.storage.disks.values())
        entered = self._stack.entered
        return CheckContext(
            self._stack.mount_point,
            configuration=entered.configuration.name if entered else "",
            suite_dir=self._suite_dir,
            disks=tuple(filter(None, disks)),
        )

    def _try(
        self, run: Run, inspection: Inspection, waiting: Callable[[str, str], None]
    ) -> Fault | None:
        """Let the workload do its work within the run's time; return the fault, if any."""
        limit_s = self._plan.run_limit_s or MOST_RUN_S
        limit = Limit(limit_s)

        def checks() -> None:
            self._watchdog.within(CHECKS_S)
            waited: list[str] = []

            def tell(cause: str, reason: str) -> None:
                waited.append(cause)
                waiting(cause, reason)

            limit.outside(lambda: inspection.before(tell))
            if waited:
                waiting("", "")
            self._watchdog.within(limit_s + GRACE_S)
            if blockers(inspection.findings):
                raise _BlockedError

        self._watchdog.within(limit_s + GRACE_S)
        try:
            with limit():
                self._work(run, checks)
        except AgentError:
            raise
        except _BlockedError:
            return Fault.from_findings(inspection.findings)
        except TooLong:
            sentence = f"{run.workload} took longer than {limit_s:g} s (run_limit_s of the plan)."
            return Fault("time", sentence, {"limit_s": limit_s})
        except Exception as error:  # noqa: BLE001 - whatever a workload raises voids its run only
            with suppress(OSError):
                (self._folder(run) / "failure.txt").write_text(traceback.format_exc())
            name = type(error).__name__
            is_foreseen = isinstance(error, WorkloadError)
            sentence = str(error) if is_foreseen else f"{run.workload}: {name}: {error}"
            return Fault("workload", sentence, {"error": name})
        finally:
            reap()
        return None

    def _work(self, run: Run, checks: Callable[[], None]) -> None:
        spec = self._plan.entries[run.workload]
        workload = registry.load(spec.workload_name)
        disk = self._stack.mount_point / f"run-{run.index:04d}"
        scratch = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=SCRATCH_ROOT))
        sampler = Sampler(self._counters, self._plan.rapl_hz)
        pyrapl = PhasePyrapl() if self._plan.rapl_source == "pyrapl" else None
        entered = self._stack.entered
        partition = Path(entered.place.partition).name if entered and entered.place else ""
        counted = (partition, mapping.kernel_name())
        marks = Marks(self._counters, sampler, self._plan.pad_s, pyrapl, counted)
        context = Context(
            disk=disk,
            scratch=scratch,
            shared=self._shared,
            assets=self._plan.asset_paths,
            parameters=spec.parameters,
            seed=seed_of(self._plan, run),
            phase=marks.phase,
            drop_caches=drop_caches,
            kept=self._folder(run) / pack.KEPT,
            leave_out=lambda name, reason: self._findings.left_out.append(LeftOut(name, reason)),
        )
        try:
            disk.mkdir()
            context.kept.mkdir(parents=True)
            workload.prepare(context)
            os.sync()
            checks()
            # Behind the checks: what they start is not loaded again, and does not stay in memory.
            drop_caches()
            time.sleep(self._plan.settle_s)
            findings = self._findings
            self._others.begin()
            findings.t_start_ns = time.monotonic_ns()
            with sampler:
                workload.run(context)
                marks.tail(self._plan.tail_s)
            findings.t_end_ns = time.monotonic_ns()
            findings.other_sources = self._others.end()
        finally:
            self._findings.samples = sampler
            self._findings.phases = marks.phases()
            try:
                workload.cleanup(context)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
                shutil.rmtree(disk, ignore_errors=True)

    def _folder(self, run: Run) -> Path:
        return self._suite_dir / "runs" / run.run_id

    def write(self, run: Run, status: str, reason: str | None) -> str:
        """Write run.json, for a void or skipped run with all that was found; return its SHA-256."""
        findings = self._findings
        inspection = findings.inspection
        document = {
            "format": FORMAT,
            "run_id": run.run_id,
            "plan_sha256": self._plan.sha256,
            "boot_id": boot_id(),
            "block": run.block,
            "configuration": run.configuration,
            "workload": run.workload,
            "parameters": dict(self._plan.entries[run.workload].parameters),
            "program": program_of(self._plan.entries[run.workload].workload_name),
            "cpus": os.cpu_count(),
            "started_wall": findings.started_wall,
            "status": status,
            "void_reason": reason,
            "t_start_ns": findings.t_start_ns,
            "t_end_ns": findings.t_end_ns,
            "origin": origin(self._plan),
            "phases": [asdict(phase) for phase in findings.phases],
            "sampler": findings.samples.lateness() if findings.samples else None,
            "rapl_sha256": findings.rapl_sha256,
            "other_sources": {name: asdict(s) for name, s in findings.other_sources.items()},
            "left_out": [asdict(omission) for omission in findings.left_out],
            "kept": pack.kept_sums(self._folder(run)),
            "proof": findings.proof and asdict(findings.proof),
            "checks": [f.document() for f in inspection.findings] if inspection else [],
            "disks": asdict(inspection.disks) if inspection else {},
        }
        return write_json(self._folder(run) / "run.json", document)


def program_of(workload: str) -> str:
    """Name the program that does the measured work; empty if there is no such workload here."""
    try:
        return registry.load(workload).program
    except WorkloadError:
        return ""


def origin(plan: Plan) -> str:
    """Return the plan's origin, but never better than the counters.

    A simulated zone is modelled.
    """
    return "modelled" if SIMULATED_RAPL.exists() else plan.origin


def seed_of(plan: Plan, run: Run) -> int:
    """Return the seed of a run: the same for all configurations of a block.

    Each repetition within the block has another. 31 bits: programs such as sysbench take a signed
    32-bit number.
    """
    text = f"{plan.seed}:{run.block}:{run.workload}" + (f":{run.repeat}" if run.repeat else "")
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


def drop_caches() -> None:
    """Write dirty pages back, then empty page cache, dentries and inodes."""
    os.sync()
    DROP_CACHES.write_text("3\n")


def shared_scratch() -> Path:
    """Make a new folder for files that runs have in common.

    Other users, such as a database's, may enter it.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}shared-", dir=SCRATCH_ROOT))
    folder.chmod(_SHARED_MODE)
    return folder


@contextmanager
def no_scratch_left() -> Iterator[None]:
    """Remove what a killed agent left, and at the end what the runs had in common."""
    _remove_scratch()
    try:
        yield
    finally:
        _remove_scratch()


def _remove_scratch() -> None:
    for folder in SCRATCH_ROOT.glob(f"{SCRATCH_PREFIX}*"):
        with suppress(OSError):
            status = folder.lstat()
            private = stat.S_IMODE(status.st_mode) in (0o700, _SHARED_MODE)
            # Anybody can make a folder with such a name there.
            if stat.S_ISDIR(status.st_mode) and private and status.st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)
