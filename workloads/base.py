"""Base class of a workload: declared parameters, requirements, phases and the work in them."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from contract.documents import Bounds
from contract.parameters import Parameter, ParameterValue
from contract.problem import ProblemError

# Units of work for which joules per unit are computed.
UNITS = (
    *("bytes", "files", "queries", "rows", "transactions", "video_s", "idle_s"),
    *("operations", "derivations", "keys", "matches", "events"),
)
# Units that are compared with the plan only.
CHECKED = ("entries", "frames", "seconds", "threads")


def one_of(name: str, about: str, *choices: str) -> Parameter:
    """Return a parameter whose value is one of these words, the first by default."""
    return Parameter(name, choices[0], "", about, choices=choices)


Parameters = Mapping[str, ParameterValue]
Assets = Mapping[str, Path]


class WorkloadError(ProblemError):
    """A workload or one of its programs failed; the message is one sentence for people."""

    ROOM = "workloads"


# Least share of expected traffic of the disk; largest share and bytes if none is expected.
DISK_SHARE = 0.95
CACHE_SHARE = 0.05
QUIET_BYTES = 256 << 10


@dataclass
class Work:
    """The account of a phase's work, by unit: one or several of `UNITS`, or of `CHECKED`.

    `plan` records the request, `report` the program's report, and `add` our count: joules per unit
    are of the last. The `disk` methods state the traffic that the kernel must have counted on the
    disk. The agent compares them all (`contract.account`), and voids runs that disagree. All of
    this may be called after the phase is left, until `Workload.run` returns: counting files is not
    part of the measured work.
    """

    amounts: dict[str, float] = field(default_factory=dict)
    planned: dict[str, float] = field(default_factory=dict)
    reported: dict[str, float] = field(default_factory=dict)
    disk_bounds: dict[str, Bounds] = field(default_factory=dict)

    def plan(self, **amounts: float) -> None:
        """Record the amounts that the phase was asked to do."""
        self.planned |= amounts

    def report(self, **amounts: float) -> None:
        """Record the amounts that the program reports."""
        self.reported |= amounts

    def add(self, **amounts: float) -> None:
        """Add counted amounts."""
        for unit, amount in amounts.items():
            self.amounts[unit] = self.amounts.get(unit, 0) + amount

    def disk_reads(self, size_bytes: float) -> None:
        """Expect these bytes to be read from the disk, because no cache holds them."""
        self.disk_bounds["read_bytes"] = Bounds(DISK_SHARE * size_bytes)

    def disk_reads_none_of(self, size_bytes: float) -> None:
        """Expect hardly any of these bytes to be read from the disk: a cache holds them."""
        self.disk_bounds["read_bytes"] = Bounds(0, CACHE_SHARE * size_bytes + QUIET_BYTES)

    def disk_writes(self, size_bytes: float) -> None:
        """Expect these bytes on the disk by the end of the phase."""
        self.disk_bounds["written_bytes"] = Bounds(DISK_SHARE * size_bytes)

    def disk_rests(self) -> None:
        """Expect neither reads nor writes except a file system's own."""
        self.disk_reads_none_of(0)
        self.disk_writes_nothing()

    def disk_writes_nothing(self) -> None:
        """Expect no writes except a file system's own."""
        self.disk_bounds["written_bytes"] = Bounds(0, QUIET_BYTES)


@dataclass(frozen=True)
class Context:
    """Everything that a workload gets for a run.

    `disk` is an empty directory on the file system under test; `scratch` one on the system disk,
    for data that must not touch the disk under test, and `shared` another next to it, common to
    runs of the same suite: results of long preparations may be stored there for later runs, and may
    be missing. `phase(name)` marks a measured interval: counters are read at its start and end, and
    the yielded `Work` is stored with it. Phase names are unique in a run. `drop_caches()` writes
    dirty pages back and empties the page cache; call it only between phases. Files written below
    `kept` are saved with the run's results, such as a program's report. `leave_out(what, reason)`
    records that a declared part cannot run here, and why, in a sentence with the remedy; the run is
    valid without it, and the report states it.
    """

    disk: Path
    scratch: Path
    shared: Path
    assets: Assets
    parameters: Parameters
    seed: int
    phase: Callable[[str], AbstractContextManager[Work]]
    drop_caches: Callable[[], None]
    kept: Path
    leave_out: Callable[[str, str], None]


@dataclass(frozen=True)
class Needs:
    """Required room on the file system under test and on the system disk, and memory, in bytes."""

    disk_bytes: int = 0
    scratch_bytes: int = 0
    memory_bytes: int = 0


def unfit(workload: str, program: str, path: str | Path | None) -> list[str]:
    """Return why a program cannot do measured work: it is missing, or a script; empty if it can.

    A script in front of the program may let it do less than it reports. `path` is where it was
    found.
    """
    if path is None:
        return [f"{workload} needs the program {program}: install its package."]
    with Path(path).open("rb") as file:
        if file.read(2) != b"#!":
            return []
    return [f"{workload} needs the program {program} itself, and {path} is a script: remove it."]


class Workload(ABC):
    """One workload, in a module of its `name`, here or in an installed package.

    `program` describes what does the measured work: `dd (coreutils)`, `the kernel's ciphers`.
    `small` are parameters for a very short trial; `programs` are the programs that it starts; if
    one of them fails, the run ends with that program's last message.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    program: ClassVar[str] = ""
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    small: ClassVar[Parameters] = {}
    programs: ClassVar[tuple[str, ...]] = ()
    assets: ClassVar[tuple[str, ...]] = ()

    def requires(self, parameters: Parameters, assets: Assets) -> list[str]:  # noqa: ARG002
        """Return why this cannot run here with these parameters; empty if it can.

        Each reason is a sentence with the remedy.
        """
        reasons = [r for p in self.programs for r in unfit(self.name, p, shutil.which(p))]
        reasons += self.unnamed(assets)
        for name in self.assets:
            if name in assets and not assets[name].exists():
                reasons.append(f"{self.name} needs {assets[name]}, which is not there.")
        return reasons

    def unnamed(self, assets: Assets) -> list[str]:
        """Return the reasons that concern the inventory: assets that it does not name."""
        return [
            f"{self.name} needs the asset {name}: name it in the inventory."
            for name in self.assets
            if name not in assets
        ]

    def check(self, parameters: Parameters) -> None:  # noqa: B027  as above
        """Refuse parameters with WorkloadError that their declarations permit, at planning.

        Examples are lists without a word, and values that do not fit together.
        """

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        """Return the room needed before the first run, so that no run fails for lack of it."""
        return Needs()

    def prepare(self, context: Context) -> None:  # noqa: B027  not every workload needs it
        """Prepare the measured part; not measured."""

    @abstractmethod
    def run(self, context: Context) -> None:
        """Do the work, every measured part inside a phase."""

    def cleanup(self, context: Context) -> None:  # noqa: B027  not every workload needs it
        """Undo changes of `prepare` and `run` outside `context.disk`; also runs after failures."""
