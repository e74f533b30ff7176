"""Suite files (YAML, workloads/suites): parsing, scales, and configurations of a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import yaml

from contract import schema, steady_state
from contract.errors import ControllerError
from contract.parameters import ParameterValue
from contract.plan import (
    MOST_ATTEMPTS,
    MOST_BLOCKS,
    MOST_PASSES,
    MOST_REST_S,
    MOST_RUN_S,
    Configuration,
    DeclaredAnalysis,
    DeclaredComparison,
    Precondition,
    Side,
)
from contract.schema import REST, Closed, Items, Range, Text
from controller.planning.known_names import SUITES, require_known, suite_names

# A number keeps its type from the file, which is visible in the bytes of plan.json.
Seconds = Annotated[int | float, Range(least=0, most=MOST_REST_S)]
Hertz = Annotated[int | float, Range(above=0, most=1000)]
Lasting = Annotated[int | float, Range(above=0, most=MOST_RUN_S)]
Share = Annotated[float, Range(above=0, below=1)]
Repeat = Annotated[int, Range(least=1, most=1000)]
Names = Annotated[tuple[str, ...], Items(1)]
Parameters = Mapping[str, ParameterValue]
Word = Annotated[
    str,
    Text(
        "[a-z0-9]+([_-][a-z0-9]+)*",
        "a name of lower-case letters and digits, with words joined by - or _ (in quotes if YAML "
        "reads it as true, false or a number)",
    ),
]
Question = Annotated[str, Text(r"(?s).*\S.*", "a question in words")]
Phase = Annotated[
    str, Text("[A-Za-z0-9]+([.-][A-Za-z0-9]+)*", "the name of a phase, as write-large, or all")
]


@dataclass(frozen=True)
class SuiteWorkload(Closed):
    """An entry of `workloads`; without `configurations` it runs on all of the suite."""

    name: Word
    workload: str | None = None
    parameters: Parameters = field(default_factory=dict)
    repeat: Repeat = 1
    configurations: Names | None = None
    overall: bool = True


@dataclass(frozen=True)
class SuiteExtra(Closed):
    """Blocks after the full ones, by default with all configurations and entries."""

    blocks: Annotated[int, Range(least=0, most=MOST_BLOCKS)]
    configurations: Names | None = None
    workloads: tuple[str, ...] | None = None


@dataclass(frozen=True)
class SuiteSide(Closed, Side):
    """One side of a comparison; the phase `all` is the sum of all but the tail."""

    phase: Phase = "all"


@dataclass(frozen=True, kw_only=True)
class SuiteComparison(Closed, DeclaredComparison):
    """A question about two entries or phases, answered for each configuration."""

    name: Word
    question: Question = field()
    first: SuiteSide
    second: SuiteSide
    configurations: Names | None = None


@dataclass(frozen=True)
class SuitePrecondition(Closed, Precondition):
    """How disks are brought to a steady state; the defaults are those of the specification.

    Source: SNIA SSS PTS 2.0.2, see contract/steady_state.py.
    """

    passes: Annotated[int, Range(least=1, most=MOST_PASSES)] = 2
    rounds: Annotated[int, Range(least=steady_state.WINDOW, most=steady_state.MOST_ROUNDS)] = (
        steady_state.MOST_ROUNDS
    )
    round_s: Annotated[int | float, Range(above=0, most=MOST_REST_S)] = 60
    access: Literal["sequential", "random"] = "sequential"


@dataclass(frozen=True)
class DriftCheck(Closed):
    """The workload `drift_check`: its interval in blocks, and its parameters."""

    every: Annotated[int, Range(least=1)] = 1
    parameters: Annotated[Parameters, REST] = field(default_factory=dict)


@dataclass(frozen=True)
class EntryChange(Closed):
    """Changes of an entry, except of its parameters, by a scale."""

    repeat: Repeat | None = None
    configurations: Names | None = None


@dataclass(frozen=True)
class ComparisonChange(Closed):
    """Changes of a comparison by a scale."""

    question: Question | None = None
    first: SuiteSide | None = None
    second: SuiteSide | None = None
    configurations: Names | None = None


@dataclass(frozen=True)
class ExtraChange(Closed):
    """Changes of the extra blocks by a scale."""

    blocks: Annotated[int, Range(least=0, most=MOST_BLOCKS)] | None = None
    configurations: Names | None = None
    workloads: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Scale(Closed):
    """Changes of a suite for other machines; None keeps the suite's value.

    `workloads` are single parameters by entry. Every scale measures the same.
    """

    summary: str | None = None
    blocks: Annotated[int, Range(least=1, most=MOST_BLOCKS)] | None = None
    rapl_hz: Hertz | None = None
    settle_s: Seconds | None = None
    tail_s: Seconds | None = None
    run_limit_s: Lasting | None = None
    drift_check: bool | DriftCheck | None = None
    precondition: bool | SuitePrecondition | None = None
    extra: ExtraChange | None = None
    workloads: Mapping[str, Parameters] = field(default_factory=dict)
    entries: Mapping[str, EntryChange] = field(default_factory=dict)
    comparisons: Mapping[str, ComparisonChange] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite(Closed):
    """A suite file: what is measured, how often, and at which sizes (workloads/suites/README.md).

    Without `configurations` it uses all of the inventory. `one_disk` maps configurations to those
    that replace them if all are on the self-encrypting disk; with `disks` each configuration is
    created on each of these disks.
    """

    summary: str
    blocks: Annotated[int, Range(least=1, most=MOST_BLOCKS)]
    workloads: Annotated[tuple[SuiteWorkload, ...], Items(1)]
    rapl_hz: Hertz
    settle_s: Seconds
    tail_s: Seconds
    configurations: tuple[str, ...] = ()
    contrasts: tuple[tuple[str, str], ...] | None = None
    margin: Share = DeclaredAnalysis.margin
    watermark: bool = True
    attempts: Annotated[int, Range(least=1, most=MOST_ATTEMPTS)] = 3
    run_limit_s: Lasting = 3600
    drift_check: bool | DriftCheck = True
    discard_first: bool | None = None
    precondition: bool | SuitePrecondition = False
    one_disk: Mapping[str, str] = field(default_factory=dict)
    disks: Names | None = None
    extra: SuiteExtra | None = None
    comparisons: tuple[SuiteComparison, ...] = ()
    scales: Mapping[str, Scale] = field(default_factory=dict)


_Shape = TypeVar("_Shape", SuiteWorkload, SuiteComparison, SuiteExtra, Suite)
_Change = EntryChange | ComparisonChange | ExtraChange | Scale


def load_suite(name: str, folder: Path = SUITES) -> Suite:
    """Parse a suite file; raises ControllerError, which suggests the nearest name or key."""
    require_known("suite", [name], suite_names(folder))
    path = folder / f"{name}.yml"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ControllerError("not-yaml", path=path, error=reason) from None
    return parse_suite(name, document)


def parse_suite(name: str, document: object) -> Suite:
    """Build a suite from a parsed YAML document; raises ControllerError."""
    try:
        return schema.read(Suite, document)
    except ValueError as error:
        raise ControllerError("suite-invalid", suite=name, error=str(error).rstrip(".")) from None


def at_scale(suite: Suite, scale: str | None) -> Suite:
    """Apply a scale to a suite; the summary then begins with the scale's name.

    Raises ControllerError for a scale, entry or comparison that the suite does not have.
    """
    if scale is None:
        return suite
    if not suite.scales:
        raise ControllerError("one-scale", scale=scale)
    require_known("scale of this suite", [scale], suite.scales)
    change = suite.scales[scale]
    names = [entry.name for entry in suite.workloads]
    require_known(f"workload of scale {scale}", change.workloads, names)
    require_known(f"entry of scale {scale}", change.entries, names)
    compared = [comparison.name for comparison in suite.comparisons]
    require_known(f"comparison of scale {scale}", change.comparisons, compared)
    if change.extra is not None and suite.extra is None:
        raise ControllerError("extra-missing", scale=scale)
    changed = _with_changes(suite, change)
    return replace(
        changed,
        summary=f"{scale}: {changed.summary}",
        workloads=tuple(
            replace(
                _with_changes(entry, change.entries.get(entry.name)),
                parameters={**entry.parameters, **change.workloads.get(entry.name, {})},
            )
            for entry in suite.workloads
        ),
        comparisons=tuple(
            _with_changes(comparison, change.comparisons.get(comparison.name))
            for comparison in suite.comparisons
        ),
        extra=suite.extra and _with_changes(suite.extra, change.extra),
    )


def _with_changes(shape: _Shape, change: _Change | None) -> _Shape:
    """Return a copy of `shape` with the values of `change`, except None and mappings."""
    values = {} if change is None else {f.name: getattr(change, f.name) for f in fields(change)}
    return replace(
        shape,
        **{
            key: value
            for key, value in values.items()
            if value is not None and not isinstance(value, Mapping)
        },
    )


def for_target(
    suite: Suite, configurations: Sequence[Configuration], chosen: Sequence[str]
) -> Suite:
    """Replace the suite's configurations by those of a target, or by the user's `chosen` ones.

    Of the suite's contrasts those between chosen ones remain; without any the default contrasts
    apply. Raises ControllerError.
    """
    disk_of = {configuration.name: configuration.disk for configuration in configurations}
    suite = _on_disks(_on_one_disk(suite, list(disk_of), chosen), disk_of)
    if not chosen:
        return suite
    contrasts = [pair for pair in suite.contrasts or () if set(pair) <= set(chosen)]
    return replace(suite, configurations=tuple(chosen), contrasts=tuple(contrasts) or None)


def _on_one_disk(suite: Suite, inventory: Sequence[str], chosen: Sequence[str]) -> Suite:
    """Replace the suite's configurations by those of `one_disk`, if it applies.

    It applies if one of them is chosen, or if nothing is chosen and the inventory has all of them
    but not all of the suite's configurations.
    """
    names = suite.one_disk
    require_known("configuration in one_disk", names, suite.configurations)
    renamed = [names.get(name, name) for name in suite.configurations]
    if chosen:
        replaced = set(names.values()) - set(suite.configurations)
        applies = not replaced.isdisjoint(chosen)
    else:
        applies = set(renamed) <= set(inventory) and not set(suite.configurations) <= set(inventory)
    if not (applies and names):
        return suite
    pairs = suite.contrasts and tuple(
        (names.get(a, a), names.get(b, b)) for a, b in suite.contrasts
    )
    suite = replace(suite, configurations=tuple(renamed), contrasts=pairs)
    return _rename(suite, {name: [replacement] for name, replacement in names.items()})


def _on_disks(suite: Suite, disk_of: Mapping[str, str]) -> Suite:
    """Replace each configuration by its variants on the suite's `disks`.

    Raises ControllerError for a disk without configurations, and a configuration without variants.
    """
    if suite.disks is None:
        return suite
    disks = suite.disks
    require_known("disk with configurations", disks, sorted(set(disk_of.values())))
    by_name = {
        name: [variant for disk in disks if (variant := on_disk(name, disk)) in disk_of]
        for name in suite.configurations
    }
    for name, variants in by_name.items():
        if not variants:
            raise ControllerError("configuration-missing", configuration=on_disk(name, disks[0]))
    # Sorted by disk, so that the report shows a disk's configurations together.
    names = [on_disk(name, disk) for disk in disks for name in suite.configurations]
    configurations = tuple(name for name in names if name in disk_of)
    contrasts = suite.contrasts
    if contrasts is not None:
        pairs = [(on_disk(a, disk), on_disk(b, disk)) for disk in disks for a, b in contrasts]
        contrasts = tuple(pair for pair in pairs if set(pair) <= set(configurations))
    return _rename(replace(suite, configurations=configurations, contrasts=contrasts), by_name)


def on_disk(name: str, disk: str) -> str:
    """Return the name of a configuration on one of several disks."""
    return f"{name}-on-{disk}"


def _rename(suite: Suite, names: Mapping[str, Sequence[str]]) -> Suite:
    """Replace names of configurations in entries, comparisons and extra blocks."""

    def renamed(configurations: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if configurations is None:
            return None
        return tuple(name for old in configurations for name in names.get(old, (old,)))

    return replace(
        suite,
        workloads=tuple(
            replace(entry, configurations=renamed(entry.configurations))
            for entry in suite.workloads
        ),
        comparisons=tuple(
            replace(comparison, configurations=renamed(comparison.configurations))
            for comparison in suite.comparisons
        ),
        extra=suite.extra
        and replace(suite.extra, configurations=renamed(suite.extra.configurations)),
    )
