"""What a suite folder holds, as typed objects (data contract: data/README.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.suite.latencies import Latency
from contract import documents
from contract.assumptions import Assumptions
from contract.documents import LockedRead, PreconditionDocument, WatermarkLine
from contract.errors import AgentError
from contract.journal import Entry
from contract.plan import Configuration, SuitePlan, WorkloadEntry
from contract.plan import Run as PlannedRun
from contract.strict_json import Document
from contract.timing import Timing
from instrumentation.accuracy import ErrorTerm
from instrumentation.clock import ClockReading

if TYPE_CHECKING:
    from analysis.suite.samples import Samples  # with Polars, which `fde run` does without

MEASURED = "measured"
MODELLED = "modelled"  # a machine that really ran, its joules from a model
SYNTHETIC = "synthetic"  # no machine at all: figures made for a purpose
ORDER = (MEASURED, MODELLED, SYNTHETIC)


def joint(origins: Iterable[str]) -> str:
    """Return the origin of what rests on several figures: the worst of theirs.

    An unknown one is modelled.

    Without any figure it is *measured*: nothing was modelled.
    """
    ranks = (ORDER.index(name) if name in ORDER else 1 for name in origins)
    return ORDER[max(ranks, default=0)]


BASELINE = "plain"
_LABEL = re.compile(r"[\w ,.–-]{1,60}")  # of letters and digits alone is the name of a cipher
TAIL = documents.TAIL
DRIFT_CHECK = "drift_check"  # a workload of its own, between blocks: no part of what is compared
SYSTEM = "system"  # the component that a meter before the whole machine sees


class SuiteError(AgentError):
    """A suite cannot be used; the message is a sentence with the remedy."""

    ROOM = "analysis"


Counter = documents.Counter
Phase = documents.Phase
Run = documents.RunDocument


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

    `own_names` are the meter's own names of `channels`, in the same order; `terms` those of its
    error.
    """

    name: str
    kind: str
    origin: str
    own_names: tuple[str, ...]
    channels: tuple[str, ...]
    terms: tuple[ErrorTerm, ...]
    timing: str
    arrival_delay_limit_s: float
    samples: Samples


@dataclass(frozen=True)
class Suite:
    """A suite as read.

    `problems` are sentences about what is missing or cannot be trusted; `frozen` where the plan has
    its own sum, `seal_holds` where all files have those of the seal.

    `skipped` runs cannot be made on this machine (a program or a cipher is missing): they are not
    void, for nothing failed. `latencies` are those of fio's requests, by run.
    """

    folder: Path
    plan: SuitePlan
    runs: tuple[Run, ...]
    void: tuple[VoidRun, ...] = ()
    meters: tuple[Meter, ...] = ()
    clock: tuple[ClockReading, ...] = ()
    before: Document = field(default_factory=dict)
    locked_reads: Mapping[str, LockedRead] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    sealed: bool = False
    frozen: bool = True
    seal_holds: bool = False
    problems: tuple[str, ...] = field(default=())
    watermarks: tuple[WatermarkLine, ...] = ()
    journal: tuple[Entry, ...] = ()
    controller_boots: int = 1
    controller_sleeps: int = 0
    skipped: tuple[VoidRun, ...] = ()
    preconditioned: Mapping[str, PreconditionDocument | None] = field(default_factory=dict)
    assumptions: Assumptions | None = None
    latencies: Mapping[str, Sequence[Latency]] = field(default_factory=dict)

    @property
    def suite_id(self) -> str:
        return self.plan.suite_id

    @property
    def host(self) -> str:
        return self.plan.host

    @cached_property
    def stacks(self) -> dict[str, Configuration]:
        """The plan's configurations by name; the first of a name counts."""
        return {entry.name: entry for entry in reversed(self.plan.configurations)}

    @cached_property
    def entries(self) -> dict[str, WorkloadEntry]:
        """The plan's workloads by the names of their entries; the first of a name counts."""
        return {entry.name: entry for entry in reversed(self.plan.workloads)}

    @property
    def configurations(self) -> list[str]:
        """Names in the plan's order."""
        return list(dict.fromkeys(entry.name for entry in self.plan.configurations))

    @property
    def baseline(self) -> str | None:
        """Return what all is a ratio to: the configuration plain, else the first unencrypted."""
        plain = self._encrypted_by("none")
        return BASELINE if BASELINE in self.stacks else next(iter(plain), None)

    @property
    def sed(self) -> str | None:
        """The first configuration that the drive itself encrypts."""
        return next(iter(self._encrypted_by("drive")), None)

    @property
    def software(self) -> list[str]:
        """The configurations that the processor encrypts, in the plan's order."""
        return self._encrypted_by("processor")

    def reference(self, name: str) -> str | None:
        """Return the configuration without encryption on the same disk.

        The baseline where there is none.

        Against it nothing but the encryption differs.
        """
        same = [n for n in self._encrypted_by("none") if self.disk_of(n) == self.disk_of(name)]
        base = self.baseline
        return base if base in same or not same or name == base else same[0]

    @property
    def by_disk(self) -> bool:
        """Return whether ratios are to each disk's configuration without encryption.

        Every disk has one, and several carry encryption in software.
        """
        bare, software, every = (
            {self.disk_of(name) for name in names}
            for names in (self._encrypted_by("none"), self.software, self.configurations)
        )
        return len(software) > 1 and every <= bare

    def base_of(self, name: str) -> str | None:
        """Return what a configuration's ratios are to: the baseline, or its disk's reference.

        For one without encryption the baseline all the same.
        """
        reference = self.reference(name) if self.by_disk else None
        return self.baseline if reference in (None, name) else reference

    @property
    def base_label(self) -> str:
        """What captions call that which ratios are to."""
        return "its disk without encryption" if self.by_disk else self.label(self.baseline or "")

    def reference_meter(self, channel: str) -> str | None:
        """Return the meter whose joules of a channel are compared; others are cross-checks.

        The plan's, else the first that has it.
        """
        having = [meter.name for meter in self.meters if channel in meter.channels]
        chosen = self.plan.reference_meters.get(channel)
        return chosen if chosen in having else next(iter(having), None)

    def disk_of(self, name: str) -> str:
        """Role of the disk that a configuration lies on; empty where the plan has no such one."""
        return self.stacks[name].disk if name in self.stacks else ""

    def label(self, name: str) -> str:
        """Return a configuration's label in the plan.

        Its name where that is no label, and both where another one is called the same.
        """
        labels = [stack.label for stack in self.stacks.values()]
        label = self.stacks[name].label if name in self.stacks else ""
        if not _LABEL.fullmatch(label):
            return name
        return label if labels.count(label) == 1 or label == name else f"{label} ({name})"

    def _encrypted_by(self, whom: str) -> list[str]:
        return [name for name in self.configurations if self.stacks[name].encrypted_by == whom]

    @property
    def workloads(self) -> list[str]:
        """Names in the plan's order, without the drift_check."""
        names = dict.fromkeys(entry.name for entry in self.plan.workloads)
        return [name for name in names if name != DRIFT_CHECK]

    def workload_of(self, name: str) -> str:
        """Return the workload that an entry of the plan runs: the entry's name if none is named."""
        entry = self.entries.get(name)
        return (entry.workload if entry else None) or name

    def counts_overall(self, name: str) -> bool:
        """Whether an entry is a part of the figure over all workloads."""
        return name not in self.entries or self.entries[name].overall

    @cached_property
    def planned(self) -> frozenset[tuple[str, str]]:
        """Pairs of workload and configuration that the plan has runs of; all where it has none."""
        every = ((w, c) for w in self.workloads for c in self.configurations)
        return frozenset((run.workload, run.configuration) for run in self.plan.runs) or frozenset(
            every
        )

    @property
    def planned_blocks(self) -> int | None:
        """The plan's blocks, with the extra ones that run a part of it; None where it has none."""
        extra = self.plan.extra_blocks
        return self.plan.blocks + (extra.count if extra else 0) if self.plan.blocks else None

    @cached_property
    def unfinished(self) -> tuple[PlannedRun, ...]:
        """The planned runs that are neither finished nor skipped, without the drift check's."""
        done = {run.run_id for run in self.runs} | {run.run_id for run in self.skipped}
        return tuple(
            run for run in self.plan.runs if run.run_id not in done and run.workload != DRIFT_CHECK
        )

    @property
    def blocks_done(self) -> str:
        """`4 of 10 blocks`: how many of the planned ones have no unfinished run."""
        left = len({run.block for run in self.unfinished})
        planned = len({run.block for run in self.plan.runs})
        return f"{planned - left} of {planned} blocks"

    @cached_property
    def machine(self) -> dict[str, str]:
        """Return provenance/before.json as text by the path of its keys: `cpu.model`."""
        return dict(leaves(self.before))

    @property
    def compared_runs(self) -> tuple[Run, ...]:
        """The finished runs without the drift check's."""
        return tuple(run for run in self.runs if run.workload != DRIFT_CHECK)

    @property
    def margin(self) -> float:
        """The declared margin of equivalence, as a share: 0.02 is ±2 %."""
        return self.plan.analysis.margin


def leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested records by the path of their keys."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        yield path, ", ".join(v if isinstance(v, str) else json.dumps(v) for v in value)
    elif value is not None:
        yield path, str(value)
