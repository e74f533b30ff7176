"""What else a suite's folder holds as JSON besides plan and journal, as shapes (data/README.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from contract.journal import Entry
from contract.names import Name
from contract.plan import PlanDocument, TargetDocument
from contract.schema import COUNT, SECONDS, SHA256, Range


@dataclass(frozen=True)
class Edge:
    """A counter at an edge: when it was read, between two stamps of the target, and its µJ."""

    t_before_ns: int
    t_after_ns: int
    energy_uj: COUNT | None


@dataclass(frozen=True)
class Counter:
    """A zone over a phase; null where there is no reading to use."""

    source: str
    zone: str
    start: Edge | None = None
    end: Edge | None = None
    max_range_uj: COUNT | None = None
    flags: tuple[str, ...] = ()
    update_ns: COUNT | None = None


@dataclass(frozen=True)
class Phase:
    """A marked stretch on the target's clock; `work` by unit."""

    name: str
    t_start_ns: int
    t_end_ns: int
    counters: tuple[Counter, ...] | None = None
    work: Mapping[str, float] | None = None
    own_cpu_s: float | None = None
    cpu_busy_s: float | None = None
    cpu_stolen_s: float | None = None
    disk_written_bytes: float | None = None


@dataclass(frozen=True)
class LeftOut:
    """A declared part of a workload that could not be done, and why."""

    what: str
    reason: str


@dataclass(frozen=True)
class Proof:
    """The configuration as it was found; more than this stands there, for people."""

    ok: bool


@dataclass(frozen=True)
class OtherZone:
    """What another source read of a zone, in µJ, between two readings of ours."""

    zone: str
    energy_uj: Annotated[float, Range(least=-1e18, most=1e18)] | None = None
    own_start: Mapping[str, Any] | None = None
    own_end: Mapping[str, Any] | None = None
    apart_ns: Annotated[float, Range(least=-1e18, most=1e18)] | None = None


@dataclass(frozen=True)
class OtherSource:
    """What another source on the target read of a run, or the error that kept it from that."""

    zones: tuple[OtherZone, ...] | None = None
    error: str | None = None
    t_start_ns: int | None = None
    t_end_ns: int | None = None


@dataclass(frozen=True)
class RunDocument:
    """run.json of a finished run; that of a void one has what was found out before."""

    format: Literal["fde-run/1"]
    run_id: Name
    plan_sha256: SHA256
    boot_id: str
    block: COUNT
    configuration: str
    workload: str
    status: Literal["finished"]
    t_start_ns: int
    t_end_ns: int
    origin: Literal["measured", "modelled", "synthetic"]
    phases: tuple[Phase, ...]
    proof: Proof
    parameters: Mapping[str, Any] | None = None
    program: str | None = None
    cpus: COUNT | None = None
    started_wall: str | None = None
    void_reason: str | None = None
    left_out: tuple[LeftOut, ...] | None = None
    kept: Mapping[str, str] | None = None
    rapl_sha256: str | None = None
    checks: tuple[Mapping[str, Any], ...] | None = None
    disks: Mapping[str, Any] | None = None
    sampler: Mapping[str, Any] | None = None
    other_sources: Mapping[str, OtherSource] | None = None


@dataclass(frozen=True)
class MeterDocument:
    """meter.json: what recorded, and whose clock its times are of."""

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
    controller_boot_id: str | None = None
    started_wall: str | None = None


@dataclass(frozen=True)
class ManifestDocument:
    """manifest.json: the SHA-256 of every sealed file, by its path in the folder."""

    format: Literal["fde-manifest/1"]
    files: Mapping[str, SHA256]


@dataclass(frozen=True)
class BundleDocument:
    """bundle.json: what `fde publish` has packed; by kind, how many names it has left out, and
    the version and the code (SHA-256) that derived the tables."""

    format: Literal["fde-bundle/1"]
    suite_id: Name
    anonymous: bool
    replaced: Mapping[str, COUNT]
    testbed: str
    code: SHA256


@dataclass(frozen=True)
class IdentityDocument:
    """identity.json: which machine the suite was begun on."""

    format: Literal["fde-identity/1"]
    machine_id: str
    boot_id: str | None = None


@dataclass(frozen=True)
class RecorderStatus:
    """What a recorder tells of itself while it runs; times are of the controller's clock, 0 for
    none yet, rates in records per second, watts by channel."""

    format: Literal["fde-recorder-status/1"]
    name: Name
    kind: str
    origin: Literal["measured", "modelled"]
    port: str
    state: Literal["starting", "recording", "lost", "full", "stopped", "failed"]
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
    last_fault: str


# Name of the schema: its title, and the shape. Lines of journal.jsonl have no keys but these.
DOCUMENTS: Mapping[str, tuple[str, Any]] = {
    "plan": ("plan.json", PlanDocument),
    "target": ("the resolved description of a target", TargetDocument),
    "journal-line": ("a line of journal.jsonl", Entry),
    "run": ("runs/<run-id>/run.json of a finished run", RunDocument),
    "meter": ("meters/<name>/meter.json", MeterDocument),
    "recorder-status": ("the status of a recorder", RecorderStatus),
    "manifest": ("manifest.json", ManifestDocument),
    "identity": ("identity.json", IdentityDocument),
    "bundle": ("bundle.json", BundleDocument),
}
