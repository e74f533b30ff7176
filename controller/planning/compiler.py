"""The order of runs: blocks, configurations within a block, workloads within a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from agent.storage import registry as registry_of_storage
from agent.storage.base import UNENCRYPTED
from contract.errors import ControllerError
from contract.extensions import ExtensionError
from contract.names import unknown
from contract.plan import DATA_OFFSET_BYTES, FORMAT, freeze
from controller.planning.factors import multiplied
from controller.planning.known_names import require_known
from controller.planning.questions import comparisons, contrasts, extra, looks, precondition, share
from controller.planning.schedule import DRIFT_CHECK, order, with_drift_checks
from controller.planning.suites import complete, entries, on_disks, on_one_disk
from instrumentation import watermark as pattern
from instrumentation.meters import registry as registry_of_meters
from instrumentation.meters.base import MeterError

MARGIN, HALF_WIDTH = 0.02, 0.005
ATTEMPTS, RUN_LIMIT_S = 3, 3600
MOST_BLOCKS = 10_000  # more than a year has time for
# By which share the drift check's power may move.
DRIFT_LIMIT = 0.01
# A window that a mark cuts is told apart by whole windows of rest beside it. A fast meter has
# none that matters.
SLOW_METER_S = 0.5
PAD_PERIODS = 4


def compile_plan(
    name: str,
    suite: Mapping[str, Any],
    target: Mapping[str, Any],
    *,
    seed: int,
    blocks: int | None = None,
    pilot: str | None = None,
    fitted: Mapping[str, Any] | None = None,
    configurations: Sequence[str] = (),
    skip: Sequence[str] = (),
    group: str | None = None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """The frozen plan. The same arguments give the same bytes; more blocks only append runs (and
    move the extra blocks and the closing drift_check behind them).

    `configurations` stand in for those that the suite names, and its contrasts between them stay;
    where it has none, the default ones are made. `pilot` is the suite that told the
    number of blocks; `fitted` what the number was fitted to (the plan's keys `hours`, `basis`).

    Entries named in `skip` may be left out where their workload cannot run on the target.

    Raises ControllerError for unknown names, PlanError where the outcome is not a whole plan.
    """
    now = now or datetime.now(UTC)
    rapl_source = target.get("rapl_source", "powercap")
    known = {stack["name"]: stack["disk"] for stack in target["configurations"]}
    suite = on_disks(on_one_disk(suite, list(known), configurations), known)
    if configurations:
        suite = {**suite, "configurations": configurations}
        declared = suite.pop("contrasts", ())
        if kept := [pair for pair in declared if set(pair) <= set(configurations)]:
            suite["contrasts"] = kept
    count = suite["blocks"] if blocks is None else blocks
    if not isinstance(count, int) or not 1 <= count <= MOST_BLOCKS:
        raise ControllerError(f"A suite has from 1 to {MOST_BLOCKS} blocks, not {count!r}.")
    stacks = _chosen(suite, target["configurations"])
    pairs = contrasts(suite, stacks)
    if "factors" in suite:
        stacks, pairs = multiplied(
            *(suite["factors"], stacks, target["filesystem"], pairs), _described
        )
    names = [stack["name"] for stack in stacks]
    chosen = bool(configurations)
    loads = entries(suite, names, target.get("database", "any"), chosen=chosen)
    further = extra(suite, names, loads, chosen=chosen)
    compared = comparisons(suite, names, loads, chosen=chosen)
    settled = precondition(suite)
    slowest_s = _slowest_s(target["meters"])
    runs = order(names, [load.turn for load in loads], blocks=count, seed=seed)
    further_keys = {}
    if further is not None:
        further_keys["extra_blocks"] = {"first": count, "count": further.blocks}
        runs = order(
            further.configurations, further.turns, blocks=further.blocks, seed=seed, begun=runs
        )
    workloads = [load.document() for load in loads]
    known_loads = [load.name for load in loads]
    require_known("workload in SKIP", skip, known_loads)
    drift_check = _drift_check(suite, stacks)
    if drift_check is not None:
        workloads.append({"name": DRIFT_CHECK, "parameters": drift_check["parameters"]})
        check = drift_check["plan"]
        runs = with_drift_checks(runs, check["configuration"], check["every"])
    return freeze(
        {
            "format": FORMAT,
            "suite_id": dated(f"{name}-{target['host']}", now),
            "suite": name,
            **({} if group is None else {"group": group}),
            "scale": suite["summary"],
            "host": target["host"],
            "seed": seed,
            "blocks": count,
            "created_wall": now.isoformat(timespec="seconds"),
            "origin": target["origin"],
            "disks": target["disks"],
            "extent": {"offset_bytes": DATA_OFFSET_BYTES, "size_bytes": target["extent_bytes"]},
            "filesystem": target["filesystem"],
            "configurations": stacks,
            # Discarded again each time, a disk would not stay as it was brought to.
            "discard_first": _flag(suite, "discard_first", otherwise=settled is None),
            **({} if settled is None else {"precondition": settled}),
            "workloads": workloads,
            "may_skip": sorted(skip),
            "runs": runs,
            **further_keys,
            "rapl_hz": suite["rapl_hz"],
            "settle_s": suite["settle_s"],
            "tail_s": suite["tail_s"],
            "attempts": suite.get("attempts", ATTEMPTS),
            "run_limit_s": suite.get("run_limit_s", RUN_LIMIT_S),
            "assets": target["assets"],
            **({"quiet": target["quiet"]} if "quiet" in target else {}),
            # Nothing for our own reader, so that plans of before stay as they are.
            **({} if rapl_source == "powercap" else {"rapl_source": rapl_source}),
            # By channel, whose joules are compared: the first meter of the inventory that has it.
            "reference_meters": {
                channel: meter["name"]
                for meter in reversed(target["meters"])
                for channel in meter["channels"].values()
            },
            # Rest beside each phase: two whole windows of a slow meter, even if one record is lost.
            "pad_s": round(PAD_PERIODS * slowest_s, 6) if slowest_s >= SLOW_METER_S else 0.0,
            "watermark": _watermark(suite, slowest_s),
            "analysis": {
                "contrasts": pairs,
                "margin": share(suite, "margin", MARGIN),
                "half_width": share(suite, "half_width", HALF_WIDTH),
                "looks": looks(suite),
                "pilot": pilot,
                **({"comparisons": compared} if compared else {}),
            },
            "drift_check": None if drift_check is None else drift_check["plan"],
            "assumptions": target["assumptions"],
            **({"hours": None, "basis": None} if fitted is None else fitted),
        }
    )


def dated(name: str, now: datetime) -> str:
    """The name of a suite's or group's folder: with the UTC time in seconds."""
    return f"{name}-{now:%Y%m%dT%H%M%SZ}"


def redate(plan: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Freeze the same plan as one made at another time."""
    names = {"suite_id": dated(f"{plan['suite']}-{plan['host']}", now)}
    if "group" in plan:
        names["group"] = dated(plan["suite"], now)
    return freeze({**plan, **names, "created_wall": now.isoformat(timespec="seconds")})


def _watermark(suite: Mapping[str, Any], slowest_s: float) -> dict[str, float] | None:
    """Chips and rest for the slowest meter; None where nobody would see them or wants them."""
    if not (_flag(suite, "watermark") and slowest_s):
        return None
    return {
        "chip_s": round(pattern.chip_s(slowest_s), 6),
        "pad_s": round(pattern.pad_s(slowest_s), 6),
    }


def _flag(suite: Mapping[str, Any], key: str, *, otherwise: bool = True) -> bool:
    """A key that says yes or no; `otherwise` where it is not named."""
    wanted = suite.get(key, otherwise)
    if not isinstance(wanted, bool):
        raise ControllerError(f"The suite's key {key} is {wanted!r}: say true or false.")
    return wanted


def _slowest_s(meters: Sequence[Mapping[str, Any]]) -> float:
    """The longest period of all meters; 0 without any."""
    try:
        periods = [
            registry_of_meters.load(meter["kind"])(
                meter["channels"], meter.get("settings")
            ).period_s
            for meter in meters
        ]
    except (MeterError, ExtensionError) as error:
        raise ControllerError(str(error)) from error
    return max(periods, default=0.0)


def _drift_check(
    suite: Mapping[str, Any], stacks: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The drift check's entry in the plan, and its parameters; None where the suite wants none."""
    wanted = suite.get("drift_check", True)
    if wanted is False:
        return None
    if wanted is not True and not isinstance(wanted, Mapping):
        raise ControllerError(
            f"The suite's key drift_check is {wanted!r}: say true, false, or its parameters."
        )
    parameters = {} if wanted is True else dict(wanted)
    every = parameters.pop("every", 1)
    if type(every) is not int or every < 1:
        raise ControllerError(
            f"The drift check's key every is {every!r}: say after how many blocks it runs again, "
            "1 or more; it runs first and last in any case."
        )
    plain = [stack["name"] for stack in stacks if stack["encrypted_by"] == UNENCRYPTED]
    names = [stack["name"] for stack in stacks]
    baseline = "plain" if "plain" in names else (plain or names)[0]
    return {
        "parameters": complete(DRIFT_CHECK, parameters),
        "plan": {
            "workload": DRIFT_CHECK,
            "configuration": baseline,
            "limit": DRIFT_LIMIT,
            "every": every,
        },
    }


def _chosen(suite: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    by_name = {stack["name"]: dict(stack) for stack in known}
    wanted = suite.get("configurations") or list(by_name)
    for name in wanted:
        if name not in by_name:
            raise ControllerError(
                unknown("configuration", str(name), by_name)
                + " The suite asks for it, the inventory's fde_configurations do not name it: name "
                "it there, or choose others with --configurations …"
            )
    return [_described(by_name[name]) for name in wanted]


def _described(stack: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with all settings, and what the analysis needs to know of its kind."""
    configuration = registry_of_storage.complete(stack)
    return {
        "name": configuration.name,
        "kind": configuration.kind,
        "disk": configuration.disk,
        "label": registry_of_storage.label(configuration),
        "encrypted_by": registry_of_storage.load(configuration.kind).encrypted_by,
        **configuration.settings,
    }
