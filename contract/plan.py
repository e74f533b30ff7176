"""The frozen plan of a suite (`fde-plan/2`, see data/README.md): hash, freeze, load."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract import names, steady_state, strict_json
from contract.errors import AgentError
from contract.parameters import ParameterValue

FORMAT = "fde-plan/2"
TARGET_FORMAT = "fde-target/1"
# The header area in front of the data: one LUKS2 header fits, for every configuration alike.
DATA_OFFSET_BYTES = 16 * 2**20

# What is written in the rounds of preconditioning: 128 KiB in order, or 4 KiB anywhere.
ACCESSES = ("sequential", "random")
MOST_PASSES = 10

# Of an entry of `configurations`; all others are its kind's own.
CONFIGURATION_KEYS = ("name", "kind", "disk", "label", "encrypted_by")


class PlanError(AgentError):
    """The plan (or the target's description) cannot be used."""


@dataclass(frozen=True)
class Disk:
    """A disk named three ways; all three must match before it is written.

    `erase` is the serial number once more, where the owner allows that what lies on it is lost.
    """

    role: str
    by_id: str
    serial: str
    size_bytes: int
    erase: str | None = None


@dataclass(frozen=True)
class Extent:
    """Where the data lies within the test partition; the same for every configuration."""

    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class Filesystem:
    """Type, options given to mkfs, and mount options (comma separated)."""

    type: str
    options: tuple[str, ...]
    mount_options: str


@dataclass(frozen=True)
class Configuration:
    """A storage stack; `settings` are those that its kind declares, by name."""

    name: str
    kind: str
    disk: str
    settings: Mapping[str, ParameterValue] = field(default_factory=dict)

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

    run_id: str
    index: int
    block: int
    configuration: str
    workload: str
    repeat: int = 0


@dataclass(frozen=True)
class Watermark:
    """The load pattern of instrumentation/watermark.py: length of a chip, rest on both sides."""

    chip_s: float
    pad_s: float


@dataclass(frozen=True)
class Precondition:
    """How the disks under test are brought to a steady state before the first run.

    `passes` over the whole extent, then at most `rounds` of the `access` (one of `ACCESSES`), each
    for `round_s` seconds, and never more than once over the extent.
    """

    passes: int
    rounds: int
    round_s: float
    access: str

    def most_bytes(self, extent: Extent) -> int:
        """What it writes to each disk at most."""
        return (self.passes + self.rounds) * extent.size_bytes


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
    # How often a run is tried until it counts, and how long one try may take. Older plans say
    # neither: they try once, for as long as it takes.
    attempts: int
    run_limit_s: float | None
    assets: Mapping[str, Path]
    # `sha256`, or `sums`: a file that lists it. Older plans have neither.
    asset_sums: Mapping[str, Mapping[str, str | None]]
    watermark: Watermark | None
    # Entries whose runs may be skipped where their workload cannot run; None: any.
    may_skip: tuple[str, ...] | None
    precondition: Precondition | None
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
    """The document with its `sha256`; raises PlanError where it is not a whole plan."""
    try:
        frozen = {**document, "sha256": digest(document)}
    except (TypeError, ValueError, RecursionError) as error:
        raise PlanError(f"The plan holds what JSON has no text for ({error}): mend it.") from None
    parse(frozen)
    return frozen


def parse(document: Mapping[str, Any]) -> Plan:
    """A plan from its document; raises PlanError if changed after freezing, or not a plan."""
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
        plan = _plan(document)
        _check(plan)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PlanError(f"The plan is not complete ({_what(error)}): make it anew.") from error
    return plan


def load(path: Path) -> Plan:
    """Read and verify a plan file; raises PlanError."""
    return parse(_read(path, "plan"))


def load_target(path: Path) -> StorageSpec:
    """The storage part of a target's description (`fde-target/1`); raises PlanError."""
    document = _read(path, "description of the target")
    if document.get("format") != TARGET_FORMAT:
        raise PlanError(
            f"{path} has format {document.get('format')!r}, not {TARGET_FORMAT!r}: "
            "provision the target again."
        )
    try:
        return _storage(
            document,
            Extent(offset_bytes=DATA_OFFSET_BYTES, size_bytes=int(document["extent_bytes"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(
            f"{path} is not complete ({_what(error)}): provision the target again."
        ) from error


def _what(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _read(path: Path, what: str) -> dict[str, Any]:
    try:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"The {what} {path} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise PlanError(f"The {what} {path} is not JSON: make it anew.") from error
    if not isinstance(document, dict):
        raise PlanError(f"The {what} {path} is not a JSON object: make it anew.")
    return document


def _plan(document: Mapping[str, Any]) -> Plan:
    extent = document["extent"]
    return Plan(
        suite_id=document["suite_id"],
        suite=document["suite"],
        host=document["host"],
        seed=int(document["seed"]),
        origin=document["origin"],
        storage=_storage(document, Extent(int(extent["offset_bytes"]), int(extent["size_bytes"]))),
        workloads={
            w["name"]: WorkloadSpec(w["name"], dict(w["parameters"]), w.get("workload", w["name"]))
            for w in document["workloads"]
        },
        runs=tuple(
            Run(
                run_id=r["run_id"],
                index=int(r["index"]),
                block=int(r["block"]),
                configuration=r["configuration"],
                workload=r["workload"],
                repeat=int(r.get("repeat", 0)),
            )
            for r in document["runs"]
        ),
        rapl_hz=float(document["rapl_hz"]),
        settle_s=float(document["settle_s"]),
        tail_s=float(document["tail_s"]),
        pad_s=_pad_s(document.get("pad_s", 0)),
        attempts=int(document.get("attempts", 1)),
        run_limit_s=_limit_s(document.get("run_limit_s")),
        assets={
            name: Path(entry if isinstance(entry, str) else entry["path"])
            for name, entry in document["assets"].items()
            if entry
        },
        asset_sums={n: e for n, e in document["assets"].items() if isinstance(e, Mapping)},
        watermark=_watermark(document.get("watermark")),
        may_skip=None if (skip := document.get("may_skip")) is None else tuple(skip),
        precondition=_precondition(document.get("precondition")),
        sha256=document["sha256"],
    )


def _pad_s(value: float) -> float:
    """Rest beside phases; none in older plans."""
    if not 0 <= float(value) < math.inf:
        raise ValueError("pad_s is no length of time")
    return float(value)


def _limit_s(value: float | None) -> float | None:
    if value is None:
        return None
    if not 0 < float(value) < math.inf:
        raise ValueError("run_limit_s is no length of time")
    return float(value)


def _watermark(entry: Mapping[str, Any] | None) -> Watermark | None:
    """None in plans that have none, older ones among them."""
    if entry is None:
        return None
    watermark = Watermark(chip_s=float(entry["chip_s"]), pad_s=float(entry["pad_s"]))
    if not (0 < watermark.chip_s < math.inf and 0 <= watermark.pad_s < math.inf):
        raise ValueError("the watermark's chip_s or pad_s is no length of time")
    return watermark


def _precondition(entry: Mapping[str, Any] | None) -> Precondition | None:
    """None in plans without it, older ones among them."""
    if entry is None:
        return None
    found = Precondition(
        int(entry["passes"]), int(entry["rounds"]), float(entry["round_s"]), entry["access"]
    )
    if not (
        1 <= found.passes <= MOST_PASSES
        and steady_state.WINDOW <= found.rounds <= steady_state.MOST_ROUNDS
        and 0 < found.round_s < math.inf
        and found.access in ACCESSES
    ):
        raise ValueError("its preconditioning is none that this agent knows")
    return found


def _storage(document: Mapping[str, Any], extent: Extent) -> StorageSpec:
    filesystem = document["filesystem"]
    configurations = map(_configuration, document["configurations"])
    return StorageSpec(
        disks={
            role: Disk(role, d["by_id"], d["serial"], int(d["size_bytes"]), d.get("erase"))
            for role, d in document["disks"].items()
        },
        extent=extent,
        filesystem=Filesystem(
            filesystem["type"], tuple(filesystem["options"]), filesystem["mount_options"]
        ),
        configurations={c.name: c for c in configurations},
        discard_first=bool(document.get("discard_first", True)),
    )


def _configuration(entry: Mapping[str, Any]) -> Configuration:
    settings = {k: v for k, v in entry.items() if k not in CONFIGURATION_KEYS and v is not None}
    if not all(isinstance(value, int | float | str) for value in settings.values()):
        raise TypeError(f"configuration {entry['name']} has a setting that is no word or number")
    return Configuration(entry["name"], entry["kind"], entry["disk"], settings)


def _names(plan: Plan) -> Iterator[object]:
    """All that becomes part of a path, a unit or a command."""
    yield from (plan.suite_id, plan.suite, plan.host)
    yield from (run.run_id for run in plan.runs)
    yield from (*plan.workloads, *(spec.workload for spec in plan.workloads.values()))
    yield from (*plan.storage.configurations, *plan.storage.disks)


def _check(plan: Plan) -> None:
    """Cross references; a dangling one would only show hours into a suite."""
    words = (*plan.storage.filesystem.options, plan.storage.filesystem.mount_options)
    if not all(isinstance(word, str) for word in (plan.storage.filesystem.type, *words)):
        raise TypeError("the file system is not described in words")
    for configuration in plan.storage.configurations.values():
        if configuration.disk not in plan.storage.disks:
            raise PlanError(
                f"Configuration {configuration.name} is on disk {configuration.disk!r}, "
                "which the plan does not name: make the plan anew."
            )
    for name in _names(plan):
        if not names.safe(name):
            raise PlanError(
                f"The plan names something {name!r}, but names are of letters, digits, dot, dash "
                "and underscore: rename it in the inventory or the suite, and make the plan anew."
            )
    seen: set[str] = set()
    for run in plan.runs:
        if run.configuration not in plan.storage.configurations:
            raise PlanError(f"Run {run.run_id} has an unknown configuration: make the plan anew.")
        if run.workload not in plan.workloads:
            raise PlanError(f"Run {run.run_id} has an unknown workload: make the plan anew.")
        if run.run_id in seen:
            raise PlanError(f"Run id {run.run_id!r} is not unique: make the plan anew.")
        seen.add(run.run_id)
    if plan.origin not in ("measured", "modelled"):
        raise PlanError(f"Origin {plan.origin!r} is neither measured nor modelled.")
