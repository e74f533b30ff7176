"""The frozen plan of a suite (`fde-plan/3`, see data/README.md): hash, freeze, load."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from contract import schema, steady_state, strict_json
from contract.errors import AgentError
from contract.names import Name
from contract.parameters import ParameterValue
from contract.schema import COUNT, REST, SECONDS, SHA256, Range

FORMAT: Literal["fde-plan/3"] = "fde-plan/3"
TARGET_FORMAT: Literal["fde-target/1"] = "fde-target/1"
# The header area in front of the data: one LUKS2 header fits, for every configuration alike.
DATA_OFFSET_BYTES = 16 * 2**20

# What is written in the rounds of preconditioning: 128 KiB in order, or 4 KiB anywhere.
ACCESSES = ("sequential", "random")
MOST_PASSES = 10

# Of an entry of `configurations`; all others are its kind's own.
CONFIGURATION_KEYS = ("name", "kind", "disk", "label", "encrypted_by")
# What gives a phase its RAPL joules: our own reader alone, or pyRAPL beside it.
RaplSource = Literal["powercap", "pyrapl"]
Lasting = Annotated[float, Range(above=0)]
Rest = Annotated[float, Range(least=0, most=1e9)]


class PlanError(AgentError):
    """The plan (or the target's description) cannot be used."""


@dataclass(frozen=True)
class Disk:
    """A disk named three ways; all three must match before it is written.

    `erase` is the serial number once more, where the owner allows that what lies on it is lost,
    and behind a blank the 12 digits of its contents.
    """

    role: str
    by_id: str
    serial: str
    size_bytes: int
    erase: str | None = None

    @property
    def erase_digits(self) -> str | None:
        """The digits of `erase`, empty where it is the serial alone; None where it is neither.

        A serial number may have blanks in it.
        """
        if self.erase == self.serial:
            return ""
        match = re.fullmatch(rf"{re.escape(self.serial)} ([0-9a-f]{{12}})", self.erase or "")
        return match[1] if match else None


@dataclass(frozen=True)
class Extent:
    """Where the data lies within the test partition; the same for every configuration."""

    offset_bytes: COUNT
    size_bytes: COUNT


@dataclass(frozen=True)
class Filesystem:
    """Type, options given to mkfs, and mount options (comma separated)."""

    type: str
    options: tuple[str, ...]
    mount_options: str


@dataclass(frozen=True)
class Configuration:
    """A storage stack.

    `settings` are those that its kind declares, by name. `filesystem` is its own where the suite's
    factors gave it one.
    """

    name: str
    kind: str
    disk: str
    settings: Mapping[str, ParameterValue] = field(default_factory=dict)
    filesystem: Filesystem | None = None

    @property
    def discard(self) -> bool:
        """Whether the file system tells the disk what is free, and every layer passes it on."""
        return bool(self.settings.get("discard"))


@dataclass(frozen=True)
class StorageSpec:
    """What of a plan or a target's description the storage stack needs."""

    disks: Mapping[str, Disk]
    extent: Extent
    filesystem: Filesystem
    configurations: Mapping[str, Configuration]
    # Whether the whole extent is discarded each time before a configuration is made.
    discard_first: bool = True


@dataclass(frozen=True)
class WorkloadSpec:
    """An entry of the plan: a workload by its name in the registry, with all its parameters.

    `name` is the entry's own: a suite may have the same workload in several sizes.
    """

    name: str
    parameters: Mapping[str, ParameterValue]
    workload: str


@dataclass(frozen=True)
class Run:
    """One entry on one configuration, once; `repeat` counts where a block has it several times."""

    run_id: Name
    index: COUNT
    block: COUNT
    configuration: Name
    workload: Name
    repeat: COUNT = 0


@dataclass(frozen=True)
class Watermark:
    """The load pattern of instrumentation/watermark.py: length of a chip, rest on both sides."""

    chip_s: Lasting
    pad_s: SECONDS


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
        """Return what it writes to each disk at most."""
        return (self.passes + self.rounds) * extent.size_bytes


@dataclass(frozen=True)
class Quiet:
    """What is switched on the target for the time of a suite, and back afterwards.

    `stop` names groups of services (`agent.system.quiet`); `governor` is cpufreq's, and `turbo`
    whether frequencies beyond the base frequency are allowed, None where it is left as it is.
    """

    stop: tuple[Name, ...] = ("timers", "updates", "disks")
    governor: Name | None = None
    turbo: bool | None = None


@dataclass(frozen=True)
class Target:
    """What the target's own inventory says of what may be read, run or switched on it."""

    storage: StorageSpec
    assets: Mapping[str, Path]
    asset_sums: Mapping[str, Mapping[str, str | None]]
    quiet: Quiet


@dataclass(frozen=True)
class DiskEntry:
    """`erase` is the serial number once more, where what lies on the disk was given up."""

    by_id: str
    serial: str
    size_bytes: COUNT
    erase: str | None = None


@dataclass(frozen=True)
class ConfigurationEntry:
    """A storage stack: what its kind declares stands beside these, null where it is not used."""

    name: Name
    kind: str
    disk: Name
    label: str = ""
    encrypted_by: Literal["none", "drive", "processor"] | None = None
    filesystem: Filesystem | None = None
    settings: Annotated[Mapping[str, ParameterValue | None], REST] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkloadEntry:
    """An entry of the suite; `workload` where it is not the name of what it runs."""

    name: Name
    parameters: Mapping[str, ParameterValue]
    workload: Name | None = None
    overall: bool = True


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


@dataclass(frozen=True)
class DeclaredComparison:
    """A comparison within each configuration; `per` is a unit of work, None for joules themselves.

    Without `configurations` it is asked of all that have both sides.
    """

    name: str
    first: Side
    second: Side
    question: str = ""
    per: str | None = None
    configurations: tuple[str, ...] | None = None


@dataclass(frozen=True)
class DeclaredAnalysis:
    """What is compared, declared before the first run: `margin` of equivalence and the wanted
    `half_width` are shares (0.02 is 2 %); with `looks` any it may end after any block.
    """

    contrasts: tuple[tuple[str, str], ...] = ()
    margin: Annotated[float, Range(above=0)] = 0.02
    half_width: Annotated[float, Range(above=0, most=1)] = 0.005
    looks: Literal["end", "any"] = "end"
    comparisons: tuple[DeclaredComparison, ...] = ()


@dataclass(frozen=True)
class DriftCheckEntry:
    """What runs before, between and after the blocks; `limit` is a share of its power."""

    workload: str
    configuration: str
    limit: Annotated[float, Range(above=0)] = 0.01


@dataclass(frozen=True)
class ExtraBlocks:
    """Blocks that run a part of the plan, after all others."""

    count: COUNT


@dataclass(frozen=True, kw_only=True)
class SuitePlan:
    """plan.json as a suite's reader takes it; that of a synthetic suite names no storage."""

    format: Literal["fde-plan/3"]
    suite_id: Name
    suite: Name
    host: Name
    origin: Literal["measured", "modelled", "synthetic"]
    sha256: str
    seed: int | None = None
    configurations: tuple[ConfigurationEntry, ...] = ()
    workloads: tuple[WorkloadEntry, ...] = ()
    runs: tuple[Run, ...] = ()
    disks: Mapping[Name, DiskEntry] = field(default_factory=dict)
    extent: Extent | None = None
    filesystem: Filesystem | None = None
    rapl_hz: float = 0.0
    settle_s: Rest = 0.0
    tail_s: float = 0.0
    pad_s: Rest = 0.0
    blocks: COUNT = 0
    extra_blocks: ExtraBlocks | None = None
    watermark: Watermark | None = None
    reference_meters: Mapping[Name, Name] = field(default_factory=dict)
    precondition: Precondition | None = None
    analysis: DeclaredAnalysis = DeclaredAnalysis()
    drift_check: DriftCheckEntry | None = None
    assumptions: Mapping[str, Any] = field(default_factory=dict)
    scale: str = ""
    created_wall: str = ""
    group: str | None = None


@dataclass(frozen=True, kw_only=True)
class PlanDocument(SuitePlan):
    """plan.json: frozen before the first run, and hashed; more stands in it than is checked."""

    seed: int = field()
    configurations: tuple[ConfigurationEntry, ...] = field()
    workloads: tuple[WorkloadEntry, ...] = field()
    runs: tuple[Run, ...] = field()
    disks: Mapping[Name, DiskEntry] = field()
    extent: Extent = field()
    filesystem: Filesystem = field()
    rapl_hz: float = field()
    settle_s: Rest = field()
    tail_s: float = field()
    sha256: SHA256 = field()
    assets: Mapping[str, Asset | str | None]
    attempts: COUNT = 1
    run_limit_s: Lasting | None = None
    may_skip: tuple[str, ...] | None = None
    discard_first: bool = True
    quiet: Quiet | None = None
    rapl_source: RaplSource = "powercap"


@dataclass(frozen=True)
class SshLink:
    """How the controller reaches a target; without `known_hosts` the user's own file counts."""

    host: str
    user: str = "root"
    port: int = 22
    key: str | None = None
    known_hosts: str | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeterEntry:
    """A power meter at the controller: its driver, its port, and what each channel supplies."""

    name: Name
    kind: str
    port: str
    origin: Literal["measured", "modelled"]
    channels: Mapping[str, str] = field(default_factory=dict)
    baud: int | None = None
    settings: Mapping[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """Return the entry as JSON holds it, without what is not set."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class TargetDocument:
    """The resolved description of a target; `ssh` is null where the target is the controller."""

    format: Literal["fde-target/1"]
    disks: Mapping[Name, DiskEntry]
    extent_bytes: COUNT
    filesystem: Filesystem
    configurations: tuple[ConfigurationEntry, ...]
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

    def document(self) -> dict[str, Any]:
        """Return the description as JSON holds it: `schema.read` makes the same target of it."""
        document: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        unused = {"label": "", "encrypted_by": None, "filesystem": None}
        for entry in document["configurations"]:
            for key in [key for key, value in unused.items() if entry[key] == value]:
                del entry[key]
            entry.update(entry.pop("settings"))
        document["meters"] = [meter.document() for meter in self.meters]
        return document


@dataclass(frozen=True)
class Plan:
    """A whole frozen plan; `runs` is the order of execution."""

    suite_id: str
    suite: str
    host: str
    seed: int
    origin: str
    storage: StorageSpec
    workloads: Mapping[str, WorkloadSpec]
    runs: tuple[Run, ...]
    rapl_hz: float
    settle_s: float
    tail_s: float
    pad_s: float
    # How often a run is tried until it counts, and how long one try may take.
    attempts: int
    run_limit_s: float | None
    assets: Mapping[str, Path]
    # `sha256`, or `sums`: a file that lists it.
    asset_sums: Mapping[str, Mapping[str, str | None]]
    watermark: Watermark | None
    # Entries whose runs may be skipped where their workload cannot run; None: any.
    may_skip: tuple[str, ...] | None
    precondition: Precondition | None
    quiet: Quiet
    rapl_source: str
    sha256: str

    @property
    def disks_used(self) -> list[Disk]:
        """Those that a configuration of the plan lies on."""
        used = {configuration.disk for configuration in self.storage.configurations.values()}
        return [disk for role, disk in self.storage.disks.items() if role in used]


def canonical(document: Mapping[str, Any]) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8; NaN and infinities are refused."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of the canonical JSON of all keys but `sha256`."""
    rest = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(canonical(rest)).hexdigest()


def freeze(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with its `sha256`; raises PlanError where it is not a whole plan."""
    try:
        frozen = {**document, "sha256": digest(document)}
    except (TypeError, ValueError, RecursionError) as error:
        raise PlanError(
            f"The plan holds what JSON has no text for ({error}): correct it."
        ) from None
    parse(frozen)
    return frozen


def parse(document: Mapping[str, Any]) -> Plan:
    """Return a plan from its document.

    Raises PlanError if changed after freezing, or not a plan.
    """
    if document.get("format") != FORMAT:
        raise PlanError(
            f"The plan has format {document.get('format')!r}, this agent reads {FORMAT!r}: "
            "make the plan and provision the target with the same version of the testbed."
        )
    try:
        own_digest = digest(document)
    except (ValueError, RecursionError):
        own_digest = ""
    if document.get("sha256") != own_digest:
        raise PlanError(
            "The plan was changed after it was frozen (its sha256 does not match): "
            "make a new plan instead of editing one."
        )
    try:
        plan = _plan(schema.read(PlanDocument, document))
    except (ValueError, OverflowError) as error:
        raise PlanError(f"The plan is not complete ({error}): make it again.") from error
    _check(plan)
    return plan


def load(path: Path) -> Plan:
    """Read and verify a plan file; raises PlanError."""
    return parse(_read(path, "plan"))


def load_target(path: Path) -> StorageSpec:
    """Return the storage part of a target's description (`fde-target/1`); raises PlanError."""
    return read_target(path).storage


def read_target(path: Path) -> Target:
    """Read a target's description (`fde-target/1`); raises PlanError."""
    return parse_target(_read(path, "description of the target"), path)


def parse_target(document: Mapping[str, Any], path: Path) -> Target:
    """Return a target from its description, which lies in `path`; raises PlanError."""
    if document.get("format") != TARGET_FORMAT:
        raise PlanError(
            f"{path} has format {document.get('format')!r}, not {TARGET_FORMAT!r}: "
            "provision the target again."
        )
    try:
        described = schema.read(TargetDocument, document)
    except (ValueError, OverflowError) as error:
        raise PlanError(f"{path} is not complete ({error}): provision the target again.") from error
    return Target(
        _storage(described, Extent(DATA_OFFSET_BYTES, described.extent_bytes)),
        *_assets(described.assets),
        described.quiet,
    )


def _read(path: Path, what: str) -> dict[str, Any]:
    try:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"The {what} {path} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise PlanError(f"The {what} {path} is not JSON: make it again.") from error
    if not isinstance(document, dict):
        raise PlanError(f"The {what} {path} is not a JSON object: make it again.")
    return document


def _plan(document: PlanDocument) -> Plan:
    assets, asset_sums = _assets(document.assets)
    return Plan(
        suite_id=document.suite_id,
        suite=document.suite,
        host=document.host,
        seed=document.seed,
        origin=document.origin,
        storage=_storage(document, document.extent, document.discard_first),
        workloads={
            w.name: WorkloadSpec(w.name, w.parameters, w.workload or w.name)
            for w in document.workloads
        },
        runs=document.runs,
        rapl_hz=document.rapl_hz,
        settle_s=document.settle_s,
        tail_s=document.tail_s,
        pad_s=document.pad_s,
        attempts=document.attempts,
        run_limit_s=document.run_limit_s,
        assets=assets,
        asset_sums=asset_sums,
        watermark=document.watermark,
        may_skip=document.may_skip,
        precondition=document.precondition,
        quiet=document.quiet or Quiet(),
        rapl_source=document.rapl_source,
        sha256=document.sha256,
    )


def _assets(
    declared: Mapping[str, Asset | str | None],
) -> tuple[dict[str, Path], dict[str, dict[str, str | None]]]:
    """Paths by name, and the sums of those that have some."""
    entries = {name: entry for name, entry in declared.items() if entry}
    paths = {name: Path(e if isinstance(e, str) else e.path) for name, e in entries.items()}
    return paths, {n: asdict(e) for n, e in entries.items() if not isinstance(e, str)}


def _storage(
    document: PlanDocument | TargetDocument, extent: Extent, discard_first: bool = True
) -> StorageSpec:
    return StorageSpec(
        disks={
            role: Disk(role, disk.by_id, disk.serial, disk.size_bytes, disk.erase)
            for role, disk in document.disks.items()
        },
        extent=extent,
        filesystem=document.filesystem,
        configurations={
            entry.name: Configuration(
                entry.name,
                entry.kind,
                entry.disk,
                {key: value for key, value in entry.settings.items() if value is not None},
                entry.filesystem,
            )
            for entry in document.configurations
        },
        discard_first=discard_first,
    )


def _check(plan: Plan) -> None:
    """Cross references; a dangling one would only show hours into a suite."""
    for configuration in plan.storage.configurations.values():
        if configuration.disk not in plan.storage.disks:
            raise PlanError(
                f"Configuration {configuration.name} is on disk {configuration.disk!r}, "
                "which the plan does not name: make a new plan."
            )
    run_ids: set[str] = set()
    for run in plan.runs:
        if run.configuration not in plan.storage.configurations:
            raise PlanError(f"Run {run.run_id} has an unknown configuration: make a new plan.")
        if run.workload not in plan.workloads:
            raise PlanError(f"Run {run.run_id} has an unknown workload: make a new plan.")
        if run.run_id in run_ids:
            raise PlanError(f"Run id {run.run_id!r} is not unique: make a new plan.")
        run_ids.add(run.run_id)
    if plan.origin not in ("measured", "modelled"):
        raise PlanError(f"Origin {plan.origin!r} is neither measured nor modelled.")


def scale_of(scale: str) -> str:
    """Return the name of the scale that a plan was made at; empty where it is the suite's own."""
    name, colon, _ = scale.partition(": ")
    return name if colon and " " not in name else ""
