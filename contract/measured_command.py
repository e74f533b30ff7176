"""What `fde measure` found out about one or more commands, as a document (`fde-command/1`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from contract.estimates import Estimate
from contract.notes import ContrastResult, Note
from contract.schema import COUNT, SECONDS

Origin = Literal["measured", "modelled"]


@dataclass(frozen=True)
class Trial:
    """One run of one command.

    By component the joules between its two reads, `window_s` apart, and the watts of the rest
    before it, null where a read failed or a sample is missing, and its flags; `errors` are the
    system's words on reads of the run that failed. `statistical_j` is the standard uncertainty
    by a counter's steps and updates, `coverage` the share of the run that a meter measured, where
    that is not all of it.
    """

    block: COUNT
    place: COUNT
    t_start_ns: int
    t_end_ns: int
    seconds: SECONDS
    user_s: SECONDS
    system_s: SECONDS
    exit_code: int
    energy_j: Mapping[str, float | None]
    statistical_j: Mapping[str, float]
    window_s: Mapping[str, SECONDS]
    rest_power_w: Mapping[str, float | None]
    flags: Mapping[str, tuple[str, ...]]
    errors: Mapping[str, tuple[str, ...]]
    coverage: Mapping[str, float]


@dataclass(frozen=True)
class ComponentEnergy:
    """A component over all runs of a command.

    `above_rest_j` is what a run took beyond the power of the rest before it, over as long; null
    where there was no rest.
    """

    energy_j: Estimate | None
    power_w: Estimate | None
    rest_power_w: Estimate | None
    above_rest_j: Estimate | None


@dataclass(frozen=True)
class CommandResult:
    """A command as it was given, and all its runs."""

    command: str
    argv: tuple[str, ...]
    seconds: Estimate | None
    components: Mapping[str, ComponentEnergy]
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Component:
    """What is measured, by which source, and whether by an instrument or by a model."""

    source: str
    label: str
    origin: Origin


@dataclass(frozen=True)
class CommandDocument:
    """What was measured on which machine and how.

    Times are of its monotonic clock. Not `ok` where it ended early, by the `message`. `output` is
    where the commands' output went.
    """

    format: Literal["fde-command/1"]
    started_wall: str
    host: str
    boot_id: str
    origin: Origin
    component: str
    components: Mapping[str, Component]
    ok: bool
    message: str
    seed: COUNT
    blocks: COUNT
    warmup: COUNT
    rest_s: SECONDS
    output: str
    commands: tuple[CommandResult, ...]
    comparisons: tuple[ContrastResult, ...]
    notes: tuple[Note, ...]
