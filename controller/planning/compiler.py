"""Compilation of a suite and a target into a frozen plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agent.storage import registry
from agent.storage.base import UNENCRYPTED
from contract.errors import ControllerError
from contract.extensions import ExtensionError
from contract.names import unknown_name
from contract.plan import (
    FORMAT,
    MOST_BLOCKS,
    Configuration,
    DeclaredAnalysis,
    DriftCheckEntry,
    ExtraBlocks,
    FitBasis,
    MeterEntry,
    Plan,
    TargetDocument,
    Watermark,
    WorkloadEntry,
    seal,
)
from controller.planning.entries import complete, plan_entries
from controller.planning.questions import plan_comparisons, plan_contrasts, plan_extra
from controller.planning.schedule import DRIFT_CHECK, order, with_drift_checks
from controller.planning.suites import DriftCheck, Suite, SuitePrecondition, for_target
from instrumentation import watermark as pattern
from instrumentation.meters import registry as registry_of_meters
from instrumentation.meters.base import MeterError

# Largest relative change of the drift check's power.
DRIFT_LIMIT = 0.01
# To split a window at a mark, whole windows of rest next to it are needed; the windows of a meter
# with a shorter period are too short to matter.
SLOW_METER_S = 0.5
PAD_PERIODS = 4


@dataclass(frozen=True)
class Fitted:
    """The hours that limited the number of blocks, and the durations used for it."""

    hours: float
    basis: FitBasis


def compile_plan(
    name: str,
    suite: Suite,
    target: TargetDocument,
    *,
    seed: int,
    blocks: int | None = None,
    fitted: Fitted | None = None,
    configurations: Sequence[str] = (),
    skip: Sequence[str] = (),
    group: str | None = None,
    created: datetime | None = None,
) -> Plan:
    """Return the frozen plan of the suite `name` on a target.

    The same arguments give the same bytes; more blocks only append runs (before the extra blocks
    and the closing drift_check). `configurations` replace those of the suite. Entries named in
    `skip` may be left out if their workload cannot run on the target.

    Raises ControllerError for unknown names, PlanError if the plan would be invalid.
    """
    created = created or datetime.now(UTC)
    count = suite.blocks if blocks is None else blocks
    if not 1 <= count <= MOST_BLOCKS:
        raise ControllerError("block-count", most=MOST_BLOCKS, blocks=count)
    suite = for_target(suite, target.configurations, configurations)
    stacks = _select(suite, target.configurations)
    pairs = plan_contrasts(suite, stacks)
    names = [stack.name for stack in stacks]
    chosen = bool(configurations)
    entries, turns = plan_entries(suite, names, target.database, chosen=chosen)
    extra = plan_extra(suite, names, turns, chosen=chosen)
    comparisons = plan_comparisons(suite, names, turns, chosen=chosen)
    precondition = SuitePrecondition() if suite.precondition is True else suite.precondition
    if precondition and suite.discard_first:
        raise ControllerError("precondition-and-discard")
    slowest_s = _slowest_s(target.meters)
    watermark = None
    if suite.watermark and slowest_s:
        chip_s, pad_s = pattern.chip_s(slowest_s), pattern.pad_s(slowest_s)
        watermark = Watermark(chip_s=round(chip_s, 6), pad_s=round(pad_s, 6))
    runs = order(names, turns, blocks=count, seed=seed)
    if extra is not None:
        runs = order(
            extra.configurations, extra.turns, blocks=extra.blocks, seed=seed, earlier=runs
        )
    drift_check = None
    settings = DriftCheck() if suite.drift_check is True else suite.drift_check
    if not isinstance(settings, bool):
        unencrypted = [stack.name for stack in stacks if stack.encrypted_by == UNENCRYPTED]
        baseline = "plain" if "plain" in names else (unencrypted or names)[0]
        drift_check = DriftCheckEntry(DRIFT_CHECK, baseline, DRIFT_LIMIT, settings.every)
        entries.append(WorkloadEntry(DRIFT_CHECK, complete(DRIFT_CHECK, settings.parameters)))
        runs = with_drift_checks(runs, drift_check.configuration, settings.every)
    return seal(
        Plan(
            format=FORMAT,
            suite_id=dated(f"{name}-{target.host}", created),
            suite=name,
            group=group,
            scale=suite.summary,
            host=target.host,
            seed=seed,
            blocks=count,
            created_wall=created.isoformat(timespec="seconds"),
            origin=target.origin,
            disks=target.disks,
            extent=target.extent,
            filesystem=target.filesystem,
            configurations=tuple(stacks),
            # A discard before each run would end the steady state.
            discard_first=not precondition if suite.discard_first is None else suite.discard_first,
            precondition=precondition or None,
            workloads=tuple(entries),
            may_skip=tuple(sorted(skip)),
            runs=tuple(runs),
            extra_blocks=ExtraBlocks(first=count, count=extra.blocks) if extra else None,
            rapl_hz=suite.rapl_hz,
            settle_s=suite.settle_s,
            tail_s=suite.tail_s,
            attempts=suite.attempts,
            run_limit_s=suite.run_limit_s,
            assets=target.assets,
            quiet=target.quiet,
            rapl_source=target.rapl_source,
            # The meter of each channel: the first of the inventory that has it.
            reference_meters={
                channel: meter.name
                for meter in reversed(target.meters)
                for channel in meter.channels.values()
            },
            # Rest around each phase: two whole windows of a slow meter, even if one record is lost.
            pad_s=round(PAD_PERIODS * slowest_s, 6) if slowest_s >= SLOW_METER_S else 0.0,
            watermark=watermark,
            analysis=DeclaredAnalysis(
                contrasts=tuple(pairs), margin=suite.margin, comparisons=tuple(comparisons)
            ),
            drift_check=drift_check,
            assumptions=target.assumptions,
            hours=fitted.hours if fitted else None,
            basis=fitted.basis if fitted else None,
            sha256="",
        )
    )


def dated(name: str, created: datetime) -> str:
    """Return the name of a suite's or group's folder: `name` with the UTC time in seconds."""
    return f"{name}-{created:%Y%m%dT%H%M%SZ}"


def redate(plan: Plan, created: datetime) -> Plan:
    """Return the same plan with another time of creation."""
    return seal(
        replace(
            plan,
            suite_id=dated(f"{plan.suite}-{plan.host}", created),
            group=plan.group and dated(plan.suite, created),
            created_wall=created.isoformat(timespec="seconds"),
        )
    )


def _select(suite: Suite, configurations: Sequence[Configuration]) -> list[Configuration]:
    """Return the suite's configurations, or all, with their defaults and the label of their kind.

    Raises ControllerError for a name that the target does not have.
    """
    by_name = {configuration.name: configuration for configuration in configurations}
    selected = []
    for name in suite.configurations or by_name:
        if name not in by_name:
            raise ControllerError(
                "configuration-not-in-inventory",
                unknown=unknown_name("configuration", name, by_name),
            )
        stack = registry.fill_in(by_name[name])
        encrypted_by = registry.load(stack.kind).encrypted_by
        selected.append(replace(stack, label=registry.label(stack), encrypted_by=encrypted_by))
    return selected


def _slowest_s(meters: Sequence[MeterEntry]) -> float:
    """Return the longest period of all meters in seconds, or 0 without a meter."""
    try:
        periods = [
            registry_of_meters.load(meter.kind)(meter.channels, meter.settings).period_s
            for meter in meters
        ]
    except (MeterError, ExtensionError) as error:
        raise ControllerError(error) from error
    return max(periods, default=0.0)
