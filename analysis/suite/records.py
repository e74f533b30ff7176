"""What a suite folder holds, as typed objects (data contract: data/README.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.suite.assumptions import Assumptions, assumptions_of
from analysis.suite.documents import mapping, mappings
from analysis.suite.preconditioned import Preconditioned
from contract.documents import LeftOut
from contract.errors import AgentError
from contract.journal import Entry
from instrumentation.sources.counter import Reading

if TYPE_CHECKING:
    from analysis.suite.samples import Samples  # with Polars, which `fde run` does without

MEASURED = "measured"
MODELLED = "modelled"  # a machine that really ran, its joules from a model
SYNTHETIC = "synthetic"  # no machine at all: figures made for a purpose
ORDER = (MEASURED, MODELLED, SYNTHETIC)


def joint(origins: Iterable[str]) -> str:
    """The origin of what rests on several figures: the worst of theirs; an unknown one is modelled.

    Without any figure it is *measured*: nothing was modelled.
    """
    ranks = (ORDER.index(name) if name in ORDER else 1 for name in origins)
    return ORDER[max(ranks, default=0)]


BASELINE = "plain"
_LABEL = re.compile(r"[\w ,.–-]{1,60}")  # of letters and digits alone is the name of a cipher
TAIL = "tail"
DRIFT_CHECK = "drift_check"  # a workload of its own, between blocks: no part of what is compared
SYSTEM = "system"  # the component that a meter before the whole machine sees


class SuiteError(AgentError):
    """Nothing can be said about a suite; the message is a sentence with the way out."""


@dataclass(frozen=True)
class Counter:
    """A counter at both edges of a phase; an edge is None where the read failed.

    `update_ns` is the longest time without an update that was seen before; None: not observed.
    """

    source: str
    zone: str
    start: Reading | None
    end: Reading | None
    max_range_uj: int | None
    flags: tuple[str, ...]
    update_ns: int | None = None


@dataclass(frozen=True)
class Phase:
    """A marked stretch of a run, on the target's clock.

    `own_cpu_s` are the agent's own CPU seconds, `cpu_busy_s` those of all programs on all CPUs
    together, `cpu_stolen_s` what a hypervisor kept from them, `disk_written_bytes` what reached the
    partition below the configuration; None where the run does not tell them.
    """

    name: str
    t_start_ns: int
    t_end_ns: int
    counters: tuple[Counter, ...]
    work: Mapping[str, float] = field(default_factory=dict)
    own_cpu_s: float | None = None
    cpu_busy_s: float | None = None
    cpu_stolen_s: float | None = None
    disk_written_bytes: float | None = None

    @property
    def duration_s(self) -> float:
        return (self.t_end_ns - self.t_start_ns) / 1e9


@dataclass(frozen=True)
class Run:
    """One finished run. `origin` is that of its RAPL figures.

    `workload` is the name of the plan's entry, which is the workload's own where it has no other.
    `program` says in words what did the measured work, `cpus` is the number of logical CPUs,
    `kept` holds the SHA-256 of files that the workload kept, by their path below `kept`; `disks` is
    what the disks told of themselves, as it stands in run.json.
    """

    run_id: str
    block: int
    configuration: str
    workload: str
    boot_id: str
    origin: str
    t_start_ns: int
    t_end_ns: int
    phases: tuple[Phase, ...]
    proof: Mapping[str, Any]
    checks: tuple[Mapping[str, Any], ...] = ()
    other_sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    started_wall: str = ""
    program: str = ""
    cpus: int | None = None
    left_out: tuple[LeftOut, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    disks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured_phases(self) -> tuple[Phase, ...]:
        """The phases that hold the work: all but the tail."""
        return tuple(phase for phase in self.phases if phase.name != TAIL)


@dataclass(frozen=True)
class VoidRun:
    """A run that counts for nothing, or was skipped because it cannot run there, and why."""

    run_id: str
    configuration: str
    workload: str
    block: int
    reason: str


@dataclass(frozen=True)
class Meter:
    """A meter and its records (data/README.md: meter.json, samples.parquet).

    `own_names` are the meter's own names of `channels`, in the same order.
    """

    name: str
    kind: str
    origin: str
    own_names: tuple[str, ...]
    channels: tuple[str, ...]
    accuracy: Mapping[str, Any]
    timing: str
    arrival_delay_limit_s: float
    samples: Samples


@dataclass(frozen=True)
class Suite:
    """A suite as read. `problems` are sentences about what is missing or cannot be trusted;
    `seal_holds` where all files have the sums of the seal.

    `skipped` runs cannot be made on this machine (a program or a cipher is missing): they are not
    void, for nothing failed.
    """

    folder: Path
    plan: Mapping[str, Any]
    runs: tuple[Run, ...]
    void: tuple[VoidRun, ...]
    meters: tuple[Meter, ...]
    clock: tuple[Mapping[str, Any], ...]
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    timing: Any
    sealed: bool
    seal_holds: bool = False
    problems: tuple[str, ...] = field(default=())
    watermarks: tuple[Mapping[str, Any], ...] = ()
    journal: tuple[Entry, ...] = ()
    controller_boots: int = 1
    controller_sleeps: int = 0
    skipped: tuple[VoidRun, ...] = ()
    preconditioned: Mapping[str, Preconditioned | None] = field(default_factory=dict)

    @property
    def suite_id(self) -> str:
        return str(self.plan.get("suite_id", self.folder.name))

    @property
    def host(self) -> str:
        return str(self.plan.get("host", ""))

    @property
    def configurations(self) -> list[str]:
        """Names in the plan's order."""
        return list(self.named("configurations"))

    @property
    def baseline(self) -> str | None:
        """What all is a ratio to: the configuration named plain, else the first that nobody
        encrypts."""
        plain = self._encrypted_by("none")
        return BASELINE if BASELINE in self.configurations else next(iter(plain), None)

    @property
    def sed(self) -> str | None:
        """The first configuration that the drive itself encrypts."""
        return next(iter(self._encrypted_by("drive")), None)

    @property
    def software(self) -> list[str]:
        """The configurations that the processor encrypts, in the plan's order."""
        return self._encrypted_by("processor")

    def reference(self, name: str) -> str | None:
        """The configuration without encryption on the same disk; the baseline where there is none.

        Against it nothing but the encryption differs.
        """
        same = [n for n in self._encrypted_by("none") if self.disk_of(n) == self.disk_of(name)]
        base = self.baseline
        return base if base in same or not same or name == base else same[0]

    @property
    def by_disk(self) -> bool:
        """Whether ratios are to each disk's own configuration without encryption: every disk has
        one, and several carry encryption in software."""
        bare, software, every = (
            {self.disk_of(name) for name in names}
            for names in (self._encrypted_by("none"), self.software, self.configurations)
        )
        return len(software) > 1 and every <= bare

    def base_of(self, name: str) -> str | None:
        """What a configuration's ratios are to: the baseline, or, where it is `by_disk`, its
        reference; for one without encryption the baseline all the same."""
        own = self.reference(name) if self.by_disk else None
        return self.baseline if own in (None, name) else own

    @property
    def base_label(self) -> str:
        """What captions call that which ratios are to."""
        return "its disk without encryption" if self.by_disk else self.label(self.baseline or "")

    def reference_meter(self, channel: str) -> str | None:
        """The meter whose joules of a channel are compared: the plan's, else the first that has it;
        all others are cross-checks."""
        having = [meter.name for meter in self.meters if channel in meter.channels]
        chosen = mapping(self.plan.get("reference_meters")).get(channel)
        return chosen if chosen in having else next(iter(having), None)

    def disk_of(self, name: str) -> str:
        """Role of the disk that a configuration lies on; empty where the plan does not say."""
        return str(self.named("configurations").get(name, {}).get("disk") or "")

    def label(self, name: str) -> str:
        """What the plan says that a configuration is called; its name where that is no label, and
        both where another one is called the same."""
        labels = [entry.get("label") for entry in self.named("configurations").values()]
        label = self.named("configurations").get(name, {}).get("label")
        if not isinstance(label, str) or not _LABEL.fullmatch(label):
            return name
        return label if labels.count(label) == 1 or label == name else f"{label} ({name})"

    def entries(self, key: str) -> list[Mapping[str, Any]]:
        """What the plan lists under `configurations`, `workloads` or `runs`."""
        return mappings(self.plan.get(key))

    def named(self, key: str) -> dict[str, Mapping[str, Any]]:
        """The same by name; the first of a name counts."""
        found: dict[str, Mapping[str, Any]] = {}
        for entry in self.entries(key):
            if "name" in entry:
                found.setdefault(str(entry["name"]), entry)
        return found

    def _encrypted_by(self, whom: str) -> list[str]:
        entries = self.named("configurations").items()
        return [name for name, entry in entries if entry.get("encrypted_by") == whom]

    @property
    def workloads(self) -> list[str]:
        """Names in the plan's order, without the drift_check."""
        return [name for name in self.named("workloads") if name != DRIFT_CHECK]

    def workload_of(self, name: str) -> str:
        """The workload that an entry of the plan runs: its own name where it names no other."""
        return str(self.named("workloads").get(name, {}).get("workload") or name)

    def counts_overall(self, name: str) -> bool:
        """Whether an entry is a part of the figure over all workloads."""
        return self.named("workloads").get(name, {}).get("overall") is not False

    @cached_property
    def planned(self) -> frozenset[tuple[str, str]]:
        """Pairs of workload and configuration that the plan has runs of; all where it has none."""
        runs = self.entries("runs")
        found = {(str(e.get("workload")), str(e.get("configuration"))) for e in runs}
        every = ((w, c) for w in self.workloads for c in self.configurations)
        return frozenset(found or every)

    @property
    def planned_blocks(self) -> int | None:
        """The plan's blocks, with the extra ones that run a part of it; None where it has none."""
        blocks = self.plan.get("blocks")
        if not isinstance(blocks, int):
            return None
        more = mapping(self.plan.get("extra_blocks")).get("count")
        return blocks + (more if isinstance(more, int) else 0)

    @property
    def compared_runs(self) -> tuple[Run, ...]:
        """The finished runs without the drift check's."""
        return tuple(run for run in self.runs if run.workload != DRIFT_CHECK)

    @property
    def any_look(self) -> bool:
        """Whether it was declared that the suite may be looked at and ended after any block."""
        return self.analysis.get("looks") == "any"

    @property
    def margin(self) -> float:
        """The declared margin of equivalence, as a share: 0.02 is ±2 %."""
        value = self.analysis.get("margin", 0.02)
        return float(value) if isinstance(value, int | float) and value > 0 else 0.02

    @property
    def contrasts(self) -> list[tuple[str, str]]:
        """Pairs of configurations that were declared before the first run."""
        pairs = self.analysis.get("contrasts")
        pairs = pairs if isinstance(pairs, list) else []
        return [(str(p[0]), str(p[1])) for p in pairs if isinstance(p, Sequence) and len(p) == 2]

    @property
    def assumptions(self) -> Assumptions | None:
        return assumptions_of(mapping(self.plan.get("assumptions")))

    @property
    def analysis(self) -> Mapping[str, Any]:
        """What was declared of the analysis before the first run."""
        return mapping(self.plan.get("analysis"))
