"""Document with the results of `fde measure` (`fde-command/1`)."""

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

    By component: the joules between its two reads, `window_s` apart, and the watts during the rest
    before it (null if a read failed or a sample is missing), and flags; `errors` are the system's
    messages for failed reads. `statistical_j` is the standard uncertainty from a counter's steps
    and updates, `coverage` the share of the run measured by a meter, if not all of it.
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
    """Energy and power of a component over all runs of a command.

    `above_rest_j` is the energy beyond the power of the preceding rest; null without rest.
    """

    energy_j: Estimate | None
    power_w: Estimate | None
    rest_power_w: Estimate | None
    above_rest_j: Estimate | None


@dataclass(frozen=True)
class CommandResult:
    """A command as given on the command line, and all its runs."""

    command: str
    argv: tuple[str, ...]
    seconds: Estimate | None
    components: Mapping[str, ComponentEnergy]
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Component:
    """A measured component, its source, and whether it is measured or modelled."""

    source: str
    label: str
    origin: Origin


@dataclass(frozen=True)
class CommandDocument:
    """Results of one or more measured commands on one machine.

    Times are of its monotonic clock. Not `ok` if it ended early; `message` has the reason. `output`
    is where the commands' output went.
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
