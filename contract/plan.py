"""Hash, freeze and load the plan of a suite (`fde-plan/3`, see data/README.md)."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from contract import schema, steady_state, strict_json
from contract.errors import AgentError
from contract.messages import Notify
from contract.names import Name
from contract.parameters import ParameterValue
from contract.schema import COUNT, KEY, OMITTED, REST, SHA256, Items, Range
from contract.strict_json import Document

FORMAT: Literal["fde-plan/3"] = "fde-plan/3"
TARGET_FORMAT: Literal["fde-target/1"] = "fde-target/1"
# The header area in front of the data: one LUKS2 header fits, for every configuration alike.
DATA_OFFSET_BYTES = 16 * 2**20

# Writes in the rounds of preconditioning: 128 KiB in order, or 4 KiB at random places.
ACCESSES = ("sequential", "random")
MOST_PASSES = 10
# Limits on the target's time that a plan may ask for; so many blocks take more than a year.
MOST_BLOCKS = 10_000
MOST_RUNS = 100_000
MOST_ATTEMPTS = 100
MOST_REST_S = 3600
MOST_RUN_S = 7 * 86_400

# The keys of an entry of `configurations` that are not its kind's settings.
CONFIGURATION_KEYS = ("name", "kind", "disk", "label", "encrypted_by", "filesystem")
# The source of a phase's RAPL joules: only our reader, or also pyRAPL.
RaplSource = Literal["powercap", "pyrapl"]
EncryptedBy = Literal["none", "drive", "processor", "both"]
Lasting = Annotated[float, Range(above=0, most=MOST_REST_S)]
Rest = Annotated[float, Range(least=0, most=MOST_REST_S)]
Blocks = Annotated[int, Range(least=0, most=MOST_BLOCKS)]
Hertz = Annotated[float, Range(least=0, most=1000)]  # RAPL counts once in a millisecond


class PlanError(AgentError):
    """The plan (or the target's description) is invalid."""


FILE_DISKS = "/run/fde-testbed/disks"


def file_serial(path: str) -> str:
    """Return the serial number of a disk that is a file, which follows from its absolute path."""
    return f"FILE-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"


def file_by_id(path: str) -> str:
    """Return the link by which the loop device of a disk that is a file is found."""
    return f"{FILE_DISKS}/{file_serial(path)}"


@dataclass(frozen=True)
class Disk:
    """A disk named three ways; all three must match before it is written.

    `role` is its key in `disks`. `erase` repeats the serial number if the owner permits erasing the
    disk, followed by a blank and the 12 digits of its contents. `endurance_bytes` is the maker's
    rating, `max_written_bytes` the owner's limit for writes over its life. A disk that is a `file`
    has a loop device, whose path and serial number follow from the file's path.
    """

    role: str = field(metadata=KEY)
    by_id: str
    serial: str
    size_bytes: COUNT
    erase: str | None = None
    file: str | None = field(default=None, metadata=OMITTED)
    endurance_bytes: COUNT | None = field(default=None, metadata=OMITTED)
    max_written_bytes: COUNT | None = field(default=None, metadata=OMITTED)

    @property
    def erase_digits(self) -> str | None:
        """Return the digits of `erase`; empty for the serial only, None if it is neither.

        A serial number may contain blanks.
        """
        if self.erase == self.serial:
            return ""
        match = re.fullmatch(rf"{re.escape(self.serial)} ([0-9a-f]{{12}})", self.erase or "")
        return match[1] if match else None


@dataclass(frozen=True)
class Extent:
    """Position of the data within the test partition; the same for every configuration."""

    offset_bytes: COUNT
    size_bytes: COUNT


@dataclass(frozen=True)
class Filesystem:
    """Type, options given to mkfs, and mount options (comma separated)."""

    type: Literal["ext4", "xfs"]
    options: tuple[str, ...]
    mount_options: str


@dataclass(frozen=True)
class Configuration:
    """A storage stack.

    `settings` are those that its kind declares, by name; in JSON they stand beside the other keys,
    null where they are not used. Without a `filesystem` it has the target's.
    """

    name: Name
    kind: str
    disk: Name
    label: str = field(default="", kw_only=True)
    encrypted_by: EncryptedBy | None = field(default=None, kw_only=True)
    settings: Annotated[Mapping[str, ParameterValue], REST] = field(default_factory=dict)
    filesystem: Filesystem | None = field(default=None, metadata=OMITTED)

    @property
    def discard(self) -> bool:
        """Return whether the file system discards free blocks through every layer."""
        return bool(self.settings.get("discard"))


@dataclass(frozen=True)
class StorageSpec:
    """The part of a plan or target description that describes storage."""

    disks: Mapping[str, Disk]
    extent: Extent
    filesystem: Filesystem
    configurations: Mapping[str, Configuration]
    # Whether the whole extent is discarded each time before a configuration is made.
    discard_first: bool = True

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of its canonical JSON, without permissions to erase or write."""
        disks = {
            role: Disk(role, disk.by_id, disk.serial, disk.size_bytes)
            for role, disk in self.disks.items()
        }
        return digest(schema.write(replace(self, disks=disks)))


@dataclass(frozen=True)
class WorkloadEntry:
    """An entry of the suite: a workload of the registry with all its parameters.

    `name` is the entry's: a suite may have the same workload in several sizes. `workload` is None
    if it has that name, too. Without `overall` an entry serves only a comparison and is excluded
    from the figure over all workloads.
    """

    name: Name
    workload: Name | None = field(default=None, kw_only=True, metadata=OMITTED)
    parameters: Mapping[str, ParameterValue]
    overall: bool = field(default=True, metadata=OMITTED)

    @property
    def workload_name(self) -> str:
        """Return the workload's name in the registry."""
        return self.workload or self.name


@dataclass(frozen=True)
class Run:
    """One entry on one configuration, once; `repeat` counts repetitions within a block."""

    run_id: Name
    index: COUNT
    block: COUNT
    configuration: Name
    workload: Name
    repeat: COUNT | None = field(default=None, metadata=OMITTED)


Runs = Annotated[tuple[Run, ...], Items(0, MOST_RUNS)]


@dataclass(frozen=True)
class Watermark:
    """The load pattern of instrumentation/watermark.py: length of a chip, rest on both sides."""

    chip_s: Lasting
    pad_s: Rest


@dataclass(frozen=True)
class Precondition:
    """How the disks under test are brought to a steady state before the first run.

    `passes` over the whole extent, then at most `rounds` of the `access` (one of `ACCESSES`), each
    for `round_s` seconds, and never more than once over the extent.
    """

    passes: Annotated[int, Range(least=1, most=MOST_PASSES)]
    rounds: Annotated[int, Range(least=steady_state.WINDOW, most=steady_state.MOST_ROUNDS)]
    round_s: Lasting
    access: Literal["sequential", "random"]

    def most_bytes(self, extent: Extent) -> int:
        """Return the most bytes that preconditioning writes to each disk."""
        return (self.passes + self.rounds) * extent.size_bytes


@dataclass(frozen=True)
class Quiet:
    """Settings of the target that are changed for a suite and restored afterwards.

    `stop` names groups of services (`agent.system.quiet`); `governor` is cpufreq's, and `turbo`
    whether frequencies above the base frequency are allowed; None changes nothing.
    """

    stop: tuple[Name, ...] = ("timers", "updates", "disks")
    governor: Name | None = None
    turbo: bool | None = None


@dataclass(frozen=True)
class Asset:
    """A file on the target, with its `sha256` or the file `sums` that lists it."""

    path: str
    sha256: str | None = None
    sums: str | None = None


@dataclass(frozen=True)
class Side:
    """One side of a comparison: an entry of the plan, and a phase of it or `all`."""

    workload: str
    phase: str = "all"


@dataclass(frozen=True, kw_only=True)
class DeclaredComparison:
    """A comparison within each configuration; `per` is a unit of work, None for joules.

    Without `configurations` it applies to all that have both sides.
    """

    name: str
    question: str = ""
    first: Side
    second: Side
    per: str | None = None
    configurations: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class DeclaredAnalysis:
    """Comparisons declared before the first run.

    The `margin` of equivalence is a share (0.02 is 2 %).
    """

    contrasts: tuple[tuple[str, str], ...] = ()
    margin: Annotated[float, Range(above=0)] = 0.02
    comparisons: tuple[DeclaredComparison, ...] = field(default=(), metadata=OMITTED)


@dataclass(frozen=True)
class DriftCheckEntry:
    """A run before, after every `every` blocks, and last; `limit` is a share of its power."""

    workload: str
    configuration: str
    limit: Annotated[float, Range(above=0)] = 0.01
    every: Annotated[int, Range(least=1)] = 1


@dataclass(frozen=True, kw_only=True)
class ExtraBlocks:
    """`count` blocks that run a part of the plan after all others, from number `first` on."""

    first: Blocks = 0
    count: Blocks


@dataclass(frozen=True, kw_only=True)
class FitBasis:
    """Basis of a number of blocks fitted to a time: seconds of a block and of everything else.

    The bounds are those used in the calculation; `suites` are the earlier suites evaluated.
    """

    suites: tuple[str, ...] = ()
    block_s: float = 0.0
    block_bound_s: float = 0.0
    ends_s: float = 0.0
    ends_bound_s: float = 0.0
    expected_s: float = 0.0
    reserve: str = ""


@dataclass(frozen=True)
class PlanHead:
    """The identifying fields of a plan of any version."""

    host: str
    suite_id: str = ""
    origin: str = ""
    created_wall: str = ""
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class SuitePlan:
    """plan.json as a suite's reader takes it; a synthetic suite names no storage.

    `runs` is the order of execution. `attempts` is the most attempts at a run, `run_limit_s` the
    limit of one attempt; `may_skip` are entries whose runs may be skipped if the target cannot run
    their workload, None for any; `reference_meters` has by channel the meter whose joules are
    compared.
    """

    format: Literal["fde-plan/3"]
    suite_id: Name
    suite: Name
    group: str | None = field(default=None, metadata=OMITTED)
    scale: str = ""
    host: Name
    seed: int | None = None
    blocks: Blocks = 0
    created_wall: str = ""
    origin: Literal["measured", "modelled", "synthetic"]
    disks: Mapping[Name, Disk] = field(default_factory=dict)
    extent: Extent | None = None
    filesystem: Filesystem | None = None
    configurations: tuple[Configuration, ...] = ()
    discard_first: bool = True
    precondition: Precondition | None = field(default=None, metadata=OMITTED)
    workloads: tuple[WorkloadEntry, ...] = ()
    may_skip: tuple[str, ...] | None = None
    runs: Runs = ()
    extra_blocks: ExtraBlocks | None = field(default=None, metadata=OMITTED)
    rapl_hz: Hertz = 0.0
    settle_s: Rest = 0.0
    tail_s: Rest = 0.0
    attempts: Annotated[int, Range(least=0, most=MOST_ATTEMPTS)] = 1
    run_limit_s: Annotated[float, Range(above=0, most=MOST_RUN_S)] | None = None
    quiet: Quiet | None = None
    rapl_source: RaplSource = field(default="powercap", metadata=OMITTED)
    reference_meters: Mapping[Name, Name] = field(default_factory=dict)
    pad_s: Rest = 0.0
    watermark: Watermark | None = None
    analysis: DeclaredAnalysis = DeclaredAnalysis()
    drift_check: DriftCheckEntry | None = None
    assumptions: Mapping[str, Any] = field(default_factory=dict)
    hours: float | None = None
    basis: FitBasis | None = None
    sha256: str

    @property
    def most_tries(self) -> int:
        """Return the most attempts at all runs together."""
        return len(self.runs) * max(1, self.attempts)

    @property
    def most_journal_bytes(self) -> int:
        """Return a bound on the journal: an attempt has some ten lines of 300 bytes."""
        return (16 << 20) + (self.most_tries << 16)

    @property
    def most_result_bytes(self) -> int:
        """Return a bound on the archive of results: an attempt has 20 KB besides samples."""
        samples = round(self.rapl_hz * (self.run_limit_s or MOST_RUN_S))
        return self.most_journal_bytes + self.most_tries * ((1 << 20) + 256 * samples)

    def document(self) -> dict[str, Any]:
        """Return plan.json as JSON holds it."""
        return dict(schema.write(self))


@dataclass(frozen=True, kw_only=True)
class Plan(SuitePlan):
    """plan.json, frozen and hashed before the first run; not all of its contents are checked."""

    seed: int = field()
    disks: Mapping[Name, Disk] = field()
    extent: Extent = field()
    filesystem: Filesystem = field()
    configurations: tuple[Configuration, ...] = field()
    workloads: tuple[WorkloadEntry, ...] = field()
    runs: Runs = field()
    rapl_hz: Hertz = field()
    settle_s: Rest = field()
    tail_s: Rest = field()
    assets: Mapping[str, Asset] = field()
    quiet: Quiet = Quiet()
    sha256: SHA256 = field()

    @cached_property
    def storage(self) -> StorageSpec:
        """Return the storage part of the plan."""
        return StorageSpec(
            self.disks,
            self.extent,
            self.filesystem,
            {configuration.name: configuration for configuration in self.configurations},
            self.discard_first,
        )

    @cached_property
    def entries(self) -> Mapping[str, WorkloadEntry]:
        """Return the plan's workloads by the names of their entries."""
        return {entry.name: entry for entry in self.workloads}

    @property
    def asset_paths(self) -> dict[str, Path]:
        """Return the paths of the plan's assets by name."""
        return {name: Path(asset.path) for name, asset in self.assets.items()}

    @property
    def disks_used(self) -> list[Disk]:
        """Return the disks that have a configuration of the plan."""
        roles = {configuration.disk for configuration in self.configurations}
        return [disk for role, disk in self.disks.items() if role in roles]


@dataclass(frozen=True)
class SshLink:
    """How the controller reaches a target; without `known_hosts` the user's file applies.

    With `become` the agent gets root's rights by sudo.
    """

    host: str
    user: str = "root"
    port: Annotated[int, Range(least=1, most=65535)] = 22
    key: str | None = None
    known_hosts: str | None = None
    options: tuple[str, ...] = ()
    become: bool = False


@dataclass(frozen=True)
class MeterEntry:
    """A power meter at the controller: its driver, its port, and the load of each channel."""

    name: Name
    kind: str
    port: str
    origin: Literal["measured", "modelled"]
    channels: Mapping[str, str] = field(default_factory=dict)
    baud: int | None = field(default=None, metadata=OMITTED)
    settings: Mapping[str, Any] | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class TargetDocument:
    """The resolved description of a target; `ssh` is null if the target is the controller.

    `notify` is only for the controller: `for_target` leaves it out.
    """

    format: Literal["fde-target/1"]
    disks: Mapping[Name, Disk]
    extent_bytes: COUNT
    filesystem: Filesystem
    configurations: tuple[Configuration, ...]
    host: Name = ""
    origin: Literal["measured", "modelled"] = "modelled"
    lab: bool = False
    ssh: SshLink | None = None
    database: Literal["any", "mariadb", "mysql"] = "any"
    packages: tuple[str, ...] = ()
    meters: tuple[MeterEntry, ...] = ()
    assets: Mapping[str, Asset] = field(default_factory=dict)
    quiet: Quiet = Quiet()
    rapl_source: RaplSource = "powercap"
    assumptions: Mapping[str, Any] = field(default_factory=dict)
    secrets_file: str = ""
    notify: Notify = field(default=Notify(), metadata=OMITTED)

    @property
    def for_target(self) -> TargetDocument:
        """Return the part of the description that the target gets."""
        return replace(self, notify=Notify())

    @property
    def extent(self) -> Extent:
        """Return the position of the data in the test partition."""
        return Extent(DATA_OFFSET_BYTES, self.extent_bytes)

    @cached_property
    def storage(self) -> StorageSpec:
        """Return the storage part of the description."""
        return StorageSpec(
            self.disks,
            self.extent,
            self.filesystem,
            {configuration.name: configuration for configuration in self.configurations},
        )

    def document(self) -> dict[str, Any]:
        """Return the description as JSON holds it: `schema.read` makes the same target of it."""
        return dict(schema.write(self))


def canonical(document: Document) -> bytes:
    """Return canonical JSON: sorted keys, no spaces, UTF-8; NaN and infinities are refused."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def digest(document: Document) -> str:
    """Return the SHA-256 (hex) of the canonical JSON of all keys but `sha256`."""
    content = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(canonical(content)).hexdigest()


def freeze(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with its `sha256`; raises PlanError if it is not a whole plan."""
    try:
        frozen = {**document, "sha256": digest(document)}
    except (TypeError, ValueError, RecursionError) as error:
        raise PlanError("plan-not-json", error=error) from None
    parse(frozen)
    return frozen


def parse(document: Document) -> Plan:
    """Return a plan from its document.

    Raises PlanError if it is not a plan or was changed after freezing.
    """
    if document.get("format") != FORMAT:
        raise PlanError("plan-format", format=document.get("format"), known=FORMAT)
    try:
        own_digest = digest(document)
    except (ValueError, RecursionError):
        own_digest = ""
    if document.get("sha256") != own_digest:
        raise PlanError("plan-changed")
    try:
        plan = schema.read(Plan, document)
    except ValueError as error:
        raise PlanError("plan-incomplete", error=error) from error
    _check(plan)
    return plan


def load(path: Path) -> Plan:
    """Read and verify a plan file; raises PlanError."""
    return parse(_read(path, "plan"))


def seal(plan: Plan) -> Plan:
    """Return the plan with the `sha256` of its document; raises PlanError as `freeze` does."""
    return replace(plan, sha256=freeze(plan.document())["sha256"])


def load_target(path: Path) -> StorageSpec:
    """Return the storage part of a target's description (`fde-target/1`); raises PlanError."""
    return read_target(path).storage


def read_target(path: Path) -> TargetDocument:
    """Read a target's description (`fde-target/1`); raises PlanError."""
    return parse_target(_read(path, "description of the target"), path)


def parse_target(document: Document, path: Path) -> TargetDocument:
    """Return a target from its description, which is in `path`; raises PlanError."""
    if document.get("format") != TARGET_FORMAT:
        raise PlanError(
            "target-format", path=path, format=document.get("format"), known=TARGET_FORMAT
        )
    try:
        return schema.read(TargetDocument, document)
    except ValueError as error:
        raise PlanError("target-incomplete", path=path, error=error) from error


def _read(path: Path, kind: str) -> Document:
    try:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError("document-unread", what=kind, path=path, reason=error.strerror) from error
    except ValueError as error:
        raise PlanError("document-not-json", what=kind, path=path) from error
    if isinstance(document, dict):
        return document
    raise PlanError("document-not-object", what=kind, path=path)


def _check(plan: Plan) -> None:
    """Raise PlanError for a dangling reference, which would only fail hours into a suite."""
    for configuration in plan.configurations:
        if configuration.disk not in plan.disks:
            raise PlanError(
                "unknown-disk", configuration=configuration.name, disk=configuration.disk
            )
    run_ids: set[str] = set()
    for run in plan.runs:
        if run.configuration not in plan.storage.configurations:
            raise PlanError("unknown-configuration", run=run.run_id)
        if run.workload not in plan.entries:
            raise PlanError("unknown-workload", run=run.run_id)
        if run.run_id in run_ids:
            raise PlanError("run-twice", run=run.run_id)
        run_ids.add(run.run_id)
    if plan.origin == "synthetic":
        raise PlanError("unknown-origin", origin=plan.origin)


HERE = "here"  # the suite of `fde here`, which has no inventory


def scale_of(scale: str) -> str:
    """Return the name of a plan's scale; empty if it is the suite's own."""
    name, colon, _ = scale.partition(": ")
    return name if colon and " " not in name else ""
