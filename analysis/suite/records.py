"""The contents of a suite folder as typed objects (data contract: data/README.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
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


def worst_origin(origins: Iterable[str]) -> str:
    """Return the worst of the origins that a figure rests on; an unknown one counts as modelled.

    Without any it is *measured*: nothing was modelled.
    """
    ranks = (ORDER.index(name) if name in ORDER else 1 for name in origins)
    return ORDER[max(ranks, default=0)]


BASELINE = "plain"
_LABEL = re.compile(r"[\w ,.–-]{1,60}")  # the name of a cipher has letters and digits only
TAIL = documents.TAIL
DRIFT_CHECK = "drift_check"  # a workload between blocks, in no comparison
SYSTEM = "system"  # the component of a meter that supplies the whole machine


class SuiteError(AgentError):
    """A suite cannot be used; the message is a sentence with the remedy."""

    ROOM = "analysis"


Counter = documents.Counter
Phase = documents.Phase
Run = documents.RunDocument


@dataclass(frozen=True)
class VoidRun:
    """A run that was void, or skipped because the machine cannot run it, and the reason."""

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
    """A suite folder as read.

    `problems` are sentences on missing or untrusted data. The plan is `frozen` if it has its own
    sum; `seal_holds` if all files have the sums of the seal. `skipped` runs cannot be made on this
    machine (a program or a cipher is missing); nothing failed, so they are not void. `latencies`
    are those of fio's requests, by run.
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
        """The configuration that ratios are to: `plain`, else the first without encryption."""
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
        """Return the configuration without encryption on the same disk, else the baseline.

        Compared with the former, only the encryption differs.
        """
        same = [n for n in self._encrypted_by("none") if self.disk_of(n) == self.disk_of(name)]
        base = self.baseline
        return base if base in same or not same or name == base else same[0]

    @property
    def by_disk(self) -> bool:
        """Whether ratios are to each disk's configuration without encryption.

        They are if every disk has one, and several configurations encrypt in software.
        """
        bare, software, every = (
            {self.disk_of(name) for name in names}
            for names in (self._encrypted_by("none"), self.software, self.configurations)
        )
        return len(software) > 1 and every <= bare

    def base_of(self, name: str) -> str | None:
        """Return the base of a configuration's ratios: the baseline, or its disk's reference.

        A configuration without encryption is always compared with the baseline.
        """
        reference = self.reference(name) if self.by_disk else None
        return self.baseline if reference in (None, name) else reference

    @property
    def base_label(self) -> str:
        """The base of the ratios, for captions."""
        return "its disk without encryption" if self.by_disk else self.label(self.baseline or "")

    def reference_meter(self, channel: str) -> str | None:
        """Return the meter whose joules of a channel are compared; others are cross-checks.

        The plan may name it; else it is the first that has the channel.
        """
        having = [meter.name for meter in self.meters if channel in meter.channels]
        chosen = self.plan.reference_meters.get(channel)
        return chosen if chosen in having else next(iter(having), None)

    def disk_of(self, name: str) -> str:
        """Return the role of a configuration's disk; empty for an unknown configuration."""
        return self.stacks[name].disk if name in self.stacks else ""

    def label(self, name: str) -> str:
        """Return a configuration's label in the plan.

        Its name if the label is invalid; label and name if another has the same label.
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
        """Return the workload that an entry of the plan runs; its name if it states none."""
        entry = self.entries.get(name)
        return (entry.workload if entry else None) or name

    def counts_overall(self, name: str) -> bool:
        """Return whether an entry counts towards the figure over all workloads."""
        return name not in self.entries or self.entries[name].overall

    @cached_property
    def planned(self) -> frozenset[tuple[str, str]]:
        """Pairs of workload and configuration with planned runs; all pairs without any runs."""
        pairs = frozenset((run.workload, run.configuration) for run in self.plan.runs)
        return pairs or frozenset(product(self.workloads, self.configurations))

    @property
    def planned_blocks(self) -> int | None:
        """The number of planned blocks, with the partial extra ones; None if the plan has none."""
        extra = self.plan.extra_blocks
        return self.plan.blocks + (extra.count if extra else 0) if self.plan.blocks else None

    @cached_property
    def unfinished(self) -> tuple[PlannedRun, ...]:
        """The planned runs that are neither finished nor skipped, without the drift check's."""
        closed = {run.run_id for run in self.runs} | {run.run_id for run in self.skipped}
        runs = (run for run in self.plan.runs if run.workload != DRIFT_CHECK)
        return tuple(run for run in runs if run.run_id not in closed)

    @property
    def blocks_done(self) -> str:
        """How many planned blocks have no unfinished run: `4 of 10 blocks`."""
        unfinished = len({run.block for run in self.unfinished})
        planned = len({run.block for run in self.plan.runs})
        return f"{planned - unfinished} of {planned} blocks"

    @cached_property
    def machine(self) -> dict[str, str]:
        """Texts of provenance/before.json by the path of their keys: `cpu.model`."""
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
