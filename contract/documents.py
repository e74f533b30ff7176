"""JSON documents of a suite's folder other than plan and journal (data/README.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from contract.counts import Edge, Gap
from contract.disks import Lifetime
from contract.journal import Entry
from contract.messages import Message
from contract.names import Name
from contract.parameters import ParameterValue
from contract.plan import Plan, TargetDocument
from contract.problem import Problem
from contract.schema import COUNT, SECONDS, SHA256, Items, Range

TAIL = "tail"  # the phase after the last one, in which delayed writes reach the disk


@dataclass(frozen=True)
class Counter:
    """Counter of a zone over a phase; an edge is null if the read failed.

    `update_ns` is the longest time without an update observed before; null: not observed.
    """

    source: str
    zone: str
    start: Edge | None = None
    end: Edge | None = None
    max_range_uj: COUNT | None = None
    flags: tuple[str, ...] = ()
    update_ns: COUNT | None = None


@dataclass(frozen=True)
class Bounds:
    """Bytes that a disk must move in a phase: at least `least`, at most `most` if that is given."""

    least: float = 0.0
    most: float | None = None


@dataclass(frozen=True)
class Phase:
    """A marked interval on the target's clock, with the account of its work (`contract.account`).

    By unit, `planned` is what was requested, `reported` what the program reports, and `work`
    what was counted: joules per unit are of `work`. The `disk_…_bytes` are the kernel's counts of
    the partition below the configuration, the `mapping_…_bytes` those of the device with the file
    system; `disk_bounds` are limits for `read_bytes` and `written_bytes` of the disk.

    `own_cpu_s` are the agent's CPU seconds, `cpu_busy_s` those of all programs on all CPUs
    together, `cpu_stolen_s` those withheld by a hypervisor. Null if the run has no such count.
    """

    name: str
    t_start_ns: COUNT
    t_end_ns: COUNT
    counters: tuple[Counter, ...] = ()
    work: Mapping[str, float] = field(default_factory=dict)
    own_cpu_s: float | None = None
    cpu_busy_s: float | None = None
    cpu_stolen_s: float | None = None
    planned: Mapping[str, float] = field(default_factory=dict)
    reported: Mapping[str, float] = field(default_factory=dict)
    disk_bounds: Mapping[str, Bounds] = field(default_factory=dict)
    disk_read_bytes: float | None = None
    disk_written_bytes: float | None = None
    disk_discarded_bytes: float | None = None
    mapping_read_bytes: float | None = None
    mapping_written_bytes: float | None = None

    @property
    def duration_s(self) -> float:
        return (self.t_end_ns - self.t_start_ns) / 1e9


@dataclass(frozen=True)
class LeftOut:
    """A declared part of a workload that could not run, and why."""

    what: str
    reason: str


@dataclass(frozen=True)
class Discard:
    """Outcome of the discard of the whole extent before the configuration was made."""

    first_bytes: float = 0.0
    first_outcome: str = "discarded"


@dataclass(frozen=True)
class CipherLayer:
    """A device-mapper layer of a configuration; `cipher_driver` is the kernel's, if it encrypts."""

    cipher_driver: str | None = None


@dataclass(frozen=True)
class Proof:
    """The observed configuration; the record holds more than this, for people.

    For a `declared` one it is only known that nothing contradicts it. A drive's own cipher has no
    layer; `cipher_driver` is the topmost layer's.
    """

    ok: bool
    declared: bool = False
    mismatches: tuple[Problem, ...] = ()
    discard: Discard | None = None
    layers: tuple[CipherLayer, ...] = ()
    cipher_driver: str | None = None


@dataclass(frozen=True)
class Check:
    """A check of the target before or after a run; `cause` and `facts` if it is not `ok`."""

    name: str = ""
    ok: bool = True
    cause: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    message: str | None = None


@dataclass(frozen=True)
class OtherZone:
    """Energy of a zone in µJ from another source, between two of our readings.

    `apart_ns`: sum of the distances in time between our reads and its own at both edges; `gaps` of
    a source that adds up polled powers.
    """

    zone: str
    energy_uj: Annotated[float, Range(least=-1e18, most=1e18)] | None = None
    own_start: Edge | None = None
    own_end: Edge | None = None
    apart_ns: Annotated[float, Range(least=-1e18, most=1e18)] | None = None
    gaps: tuple[Gap, ...] | None = None


@dataclass(frozen=True)
class OtherSource:
    """Readings of another source on the target during a run, or its error."""

    zones: tuple[OtherZone, ...] | None = None
    error: str | None = None
    t_start_ns: COUNT | None = None
    t_end_ns: COUNT | None = None
    duration_us: float | None = None


DiskFacts = Mapping[str, Any]
"""Data that a disk reports: temperature, settings, counts."""


@dataclass(frozen=True)
class RunDisks:
    """The disks' reports before and after a run, by disk name.

    `limit_k` is the permitted difference from the temperature at first.
    """

    before: Mapping[str, DiskFacts] = field(default_factory=dict)
    after: Mapping[str, DiskFacts] = field(default_factory=dict)
    limit_k: float | None = None


@dataclass(frozen=True)
class RunDocument:
    """run.json of a finished run; that of a void run has what was recorded before it failed.

    `origin` is that of its RAPL figures, `workload` the name of the plan's entry, `program`
    describes what did the measured work, `cpus` is the number of logical CPUs, `kept` holds the
    SHA-256 of files that the workload saved, by their path below `kept`.
    """

    run_id: Name
    block: COUNT
    configuration: str
    workload: str
    boot_id: str
    origin: Literal["measured", "modelled", "synthetic"]
    t_start_ns: COUNT
    t_end_ns: COUNT
    phases: tuple[Phase, ...]
    proof: Proof
    plan_sha256: SHA256
    format: Literal["fde-run/1"]
    status: Literal["finished"]
    parameters: Mapping[str, ParameterValue] | None = None
    program: str = ""
    cpus: COUNT | None = None
    started_wall: str = ""
    void_reason: str | None = None
    left_out: tuple[LeftOut, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    rapl_sha256: str | None = None
    checks: tuple[Check, ...] = ()
    disks: RunDisks = RunDisks()
    sampler: Mapping[str, float | None] | None = None
    other_sources: Mapping[str, OtherSource] = field(default_factory=dict)

    @property
    def measured_phases(self) -> tuple[Phase, ...]:
        """Return the phases that hold the work: all but the tail."""
        return tuple(phase for phase in self.phases if phase.name != TAIL)

    def zones_of(self, source: str) -> tuple[OtherZone, ...]:
        """Return the zones that another source read; empty if it read none."""
        record = self.other_sources.get(source)
        return (record.zones if record else None) or ()


@dataclass(frozen=True)
class WatermarkLine:
    """A line of watermark.jsonl: one load pattern, or why it was not played.

    `edges` are times on the target's clock and the load from then on (1 or 0); `spread_ns` is the
    largest distance in time between the edges of the `cpus` processors, `received` their busy time
    as a share of that of the load: less than 1 if a hypervisor kept some of it.
    """

    boot_id: str
    when: str | None = None
    error: str | None = None
    edges: tuple[tuple[int, int], ...] = ()
    chip_s: float = 0.0
    pad_s: float = 0.0
    spread_ns: int = 0
    cpus: COUNT | None = None
    received: float | None = None


EndCode = Literal["", "until", "stopped"]
"""Why a session ended before its last run: at its hard end, or stopped by a person."""


@dataclass(frozen=True)
class SessionLine:
    """A line of sessions.jsonl: a session of the controller began or, with `wall_s`, ended.

    An ended one has the durations of its steps, and why it ended early; `controller_cpu_s` within
    `controller_cpu_wall_s` if the controller ran on the target.
    """

    begun_ns: int
    controller_boot_id: str | None = None
    wall_s: float | None = None
    start_s: float = 0.0
    fetch_s: float = 0.0
    controller_cpu_s: float | None = None
    controller_cpu_wall_s: float | None = None
    ended: EndCode = ""


@dataclass(frozen=True)
class LockedRead:
    """Answer of a locked drive to a read after the last run."""

    error: str | None = None
    link_before: str | None = None
    link_after: str | None = None


@dataclass(frozen=True)
class AfterDocument:
    """provenance/after.json: reads of locked drives, by their serial numbers."""

    locked_reads: Mapping[str, LockedRead] = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """Bytes that a pass or round of preconditioning wrote, and its duration."""

    bytes: Annotated[int, Range(least=1, most=2**63 - 1)]
    seconds: Annotated[float, Range(above=1e-6, most=1e9)]

    @property
    def mib_s(self) -> float:
        """Return MiB per second."""
        return self.bytes / self.seconds / 2**20


@dataclass(frozen=True)
class LifetimeChange:
    """Lifetime before and after; null if the disk does not report it."""

    before: Lifetime | None = None
    after: Lifetime | None = None


@dataclass(frozen=True)
class PreconditionDocument:
    """precondition/<role>.json: how a disk was brought to a steady state."""

    format: Literal["fde-precondition/1"]
    plan_sha256: SHA256
    size_bytes: Annotated[int, Range(least=1, most=2**63 - 1)]
    access: str
    interrupted: COUNT
    filled: tuple[Written, ...]
    written: tuple[Written, ...]
    boot_id: str = ""
    started_wall: str = ""
    t_start_ns: COUNT = 0
    t_end_ns: COUNT = 0
    role: str = ""
    serial: str = ""
    offset_bytes: COUNT = 0
    passes: COUNT = 0
    rounds: COUNT = 0
    round_s: SECONDS = 0.0
    discarded_bytes: COUNT = 0
    steady: bool = False
    health: LifetimeChange = LifetimeChange()


@dataclass(frozen=True)
class UsbAdapter:
    """The USB device at the start of a recording, as the kernel describes it."""

    device: str
    usb_id: str
    serial_number: str
    location: str
    description: str


@dataclass(frozen=True)
class MeterDocument:
    """meter.json: the recording meter and the clock of its times."""

    format: Literal["fde-meter/2"]
    name: Name
    kind: str
    port: str
    origin: Literal["measured", "modelled", "synthetic"]
    channels: Mapping[str, str]
    settings: Mapping[str, Any]
    timing: Literal["device", "index", "poll"]
    arrival_delay_limit_s: SECONDS
    accuracy: Mapping[str, Any]
    baud: COUNT | None = None
    adapter: UsbAdapter | None = None
    controller_boot_id: str | None = None
    started_wall: str | None = None


@dataclass(frozen=True)
class ManifestDocument:
    """manifest.json: the SHA-256 of every sealed file, by its path in the folder."""

    format: Literal["fde-manifest/1"]
    files: Mapping[str, SHA256]


@dataclass(frozen=True)
class BundleDocument:
    """bundle.json: contents of a bundle, and version and code (SHA-256) that derived the tables."""

    format: Literal["fde-bundle/1"]
    suite_id: Name
    testbed: str
    code: SHA256


@dataclass(frozen=True)
class IdentityDocument:
    """identity.json: the machine on which the suite was begun."""

    format: Literal["fde-identity/1"]
    machine_id: str
    boot_id: str | None = None


@dataclass(frozen=True)
class GroupDocument:
    """group.json: suites of one plan on several hosts; `hosts` are in the same order."""

    format: Literal["fde-group/1"]
    group: str
    suites: Annotated[tuple[Name, ...], Items(1)]
    hosts: tuple[str, ...]


RecorderState = Literal["starting", "recording", "lost", "full", "stopped", "failed"]


@dataclass(frozen=True)
class MeterFault:
    """A fault in a meter's stream: its kind, and a sentence."""

    kind: str
    detail: str


@dataclass(frozen=True)
class RecorderStatus:
    """The state of a recorder while it runs.

    Times are of the controller's clock, 0 for none yet, rates in records per second, watts by
    channel.
    """

    format: Literal["fde-recorder-status/1"]
    name: Name
    kind: str
    origin: Literal["measured", "modelled"]
    port: str
    state: RecorderState
    message: str
    pid: COUNT
    t_mono_ns: COUNT
    t_record_ns: COUNT
    epoch: COUNT
    records: COUNT
    bytes: COUNT
    rate_hz: SECONDS
    due_hz: Annotated[float, Range(above=0)]
    watts: Mapping[str, float]
    gaps: COUNT
    faults: COUNT
    last_fault: MeterFault | None


# Name of the schema: its title, and the shape. Lines of journal.jsonl have no keys but these.
DOCUMENTS: Mapping[str, tuple[str, Any]] = {
    "plan": ("plan.json", Plan),
    "target": ("the resolved description of a target", TargetDocument),
    "journal-line": ("a line of journal.jsonl", Entry),
    "run": ("runs/<run-id>/run.json of a finished run", RunDocument),
    "meter": ("meters/<name>/meter.json", MeterDocument),
    "recorder-status": ("the status of a recorder", RecorderStatus),
    "manifest": ("manifest.json", ManifestDocument),
    "identity": ("identity.json", IdentityDocument),
    "bundle": ("bundle.json", BundleDocument),
    "message": ("a message to a receiver of fde_notify", Message),
}
