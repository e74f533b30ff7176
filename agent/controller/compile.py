"""A suite (YAML) and a resolved target compiled to the frozen plan of data/README.md."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from agent.controller.errors import ControllerError
from agent.controller.names import unknown
from agent.plan import DATA_OFFSET_BYTES, FORMAT, freeze
from instrumentation import watermark as pattern
from instrumentation.choose import UnknownNameError
from instrumentation.meters import registry as registry_of_meters
from instrumentation.meters.base import MeterError
from workloads import registry
from workloads.base import WorkloadError

MARGIN, HALF_WIDTH = 0.02, 0.005
ATTEMPTS, RUN_LIMIT_S = 3, 3600
# The workload that runs first and last on the baseline, and by which share its power may move.
CANARY, CANARY_LIMIT = "canary", 0.01
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
    group: str | None = None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """The frozen plan. The same arguments give the same bytes; more blocks only append runs (and
    move the closing canary behind them).

    `configurations` stand in for those that the suite names; `pilot` is the suite that told the
    number of blocks; `fitted` what the number was fitted to (the plan's keys `hours`, `basis`).

    Raises ControllerError for unknown names, PlanError where the outcome is not a whole plan.
    """
    now = now or datetime.now(UTC)
    if configurations:
        suite = {**suite, "configurations": configurations}
        suite.pop("contrasts", None)
    count = suite["blocks"] if blocks is None else blocks
    if not isinstance(count, int) or count < 1:
        raise ControllerError(f"A suite needs at least 1 block, not {count!r}.")
    stacks = _chosen(suite, target["configurations"])
    loads = _workloads(suite["workloads"], target.get("database", "any"))
    slowest_s = _slowest_s(target["meters"])
    names = [stack["name"] for stack in stacks]
    runs = order(names, [load["name"] for load in loads], blocks=count, seed=seed)
    canary = _canary(suite, stacks)
    if canary is not None:
        loads.append({"name": CANARY, "parameters": canary["parameters"]})
        runs = between_canaries(runs, canary["plan"]["configuration"])
    return freeze(
        {
            "format": FORMAT,
            "suite_id": f"{name}-{target['host']}-{now:%Y%m%dT%H%M%SZ}",
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
            "workloads": loads,
            "runs": runs,
            "rapl_hz": suite["rapl_hz"],
            "settle_s": suite["settle_s"],
            "tail_s": suite["tail_s"],
            "attempts": suite.get("attempts", ATTEMPTS),
            "run_limit_s": suite.get("run_limit_s", RUN_LIMIT_S),
            "assets": target["assets"],
            "pad_s": _pad_s(slowest_s),
            "watermark": _watermark(suite, slowest_s),
            "analysis": {
                "contrasts": _contrasts(suite, stacks),
                "margin": _share(suite, "margin", MARGIN),
                "half_width": _share(suite, "half_width", HALF_WIDTH),
                "pilot": pilot,
            },
            "canary": None if canary is None else canary["plan"],
            "assumptions": target["assumptions"],
            **({"hours": None, "basis": None} if fitted is None else fitted),
        }
    )


def _share(suite: Mapping[str, Any], key: str, otherwise: float) -> float:
    """A share of the ratio, as 0.02 for ±2 %."""
    value = suite.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise ControllerError(
            f"The suite's key {key} is {value!r}: give a share above 0 and below 1, as {otherwise}."
        )
    return float(value)


def _watermark(suite: Mapping[str, Any], slowest_s: float) -> dict[str, float] | None:
    """Chips and rest for the slowest meter; None where nobody would see them or wants them."""
    wanted = suite.get("watermark", True)
    if not isinstance(wanted, bool):
        raise ControllerError(f"The suite's key watermark is {wanted!r}: say true or false.")
    if not (wanted and slowest_s):
        return None
    return {
        "chip_s": round(pattern.chip_s(slowest_s), 6),
        "pad_s": round(pattern.pad_s(slowest_s), 6),
    }


def _pad_s(slowest_s: float) -> float:
    """Rest beside each phase: two whole windows of a slow meter, even if one record is lost."""
    return round(PAD_PERIODS * slowest_s, 6) if slowest_s >= SLOW_METER_S else 0.0


def _slowest_s(meters: Sequence[Mapping[str, Any]]) -> float:
    """The longest period of all meters; 0 without any."""
    try:
        periods = [
            registry_of_meters.load(meter["kind"])(
                meter["channels"], meter.get("settings")
            ).period_s
            for meter in meters
        ]
    except (MeterError, UnknownNameError) as error:
        raise ControllerError(str(error)) from error
    return max(periods, default=0.0)


def order(
    configurations: Sequence[str], loads: Sequence[str], *, blocks: int, seed: int
) -> list[dict[str, Any]]:
    """Runs in the order of execution.

    Each block enters every configuration once, in random order, and does every workload there, in
    random order. Each block has its own generator, so that a longer plan begins like a shorter one.
    """
    runs: list[dict[str, Any]] = []
    for block in range(blocks):
        shuffle = random.Random(f"{seed}/{block}")
        for configuration in shuffle.sample(configurations, len(configurations)):
            for load in shuffle.sample(loads, len(loads)):
                run = {"block": block, "configuration": configuration, "workload": load}
                runs.append(_run(len(runs), run))
    return runs


def between_canaries(runs: Sequence[Mapping[str, Any]], configuration: str) -> list[dict[str, Any]]:
    """The canary before and after all runs, in the first and in the last block."""
    canary = {"configuration": configuration, "workload": CANARY}
    whole = [{**canary, "block": 0}, *runs, {**canary, "block": runs[-1]["block"]}]
    return [_run(index, run) for index, run in enumerate(whole)]


def _run(index: int, run: Mapping[str, Any]) -> dict[str, Any]:
    block, configuration, load = run["block"], run["configuration"], run["workload"]
    return {
        "run_id": f"{index:04d}-b{block:02d}-{configuration}-{load}",
        "index": index,
        "block": block,
        "configuration": configuration,
        "workload": load,
    }


def _canary(suite: Mapping[str, Any], stacks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The canary's entry in the plan, and its parameters; None where the suite wants none."""
    wanted = suite.get("canary", True)
    if wanted is False:
        return None
    if wanted is not True and not isinstance(wanted, Mapping):
        raise ControllerError(
            f"The suite's key canary is {wanted!r}: say true, false, or its parameters."
        )
    plain = [stack["name"] for stack in stacks if stack["kind"] == "plain"]
    names = [stack["name"] for stack in stacks]
    baseline = "plain" if "plain" in names else (plain or names)[0]
    return {
        "parameters": _complete(CANARY, {} if wanted is True else wanted),
        "plan": {"workload": CANARY, "configuration": baseline, "limit": CANARY_LIMIT},
    }


def _chosen(suite: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    by_name = {stack["name"]: dict(stack) for stack in known}
    wanted = suite.get("configurations") or list(by_name)
    for name in wanted:
        if name not in by_name:
            raise ControllerError(
                unknown("configuration", str(name), by_name)
                + " The suite asks for it, the inventory's fde_configurations do not name it: name "
                "it there, or choose others with CONFIGURATIONS=…"
            )
    return [by_name[name] for name in wanted]


def _workloads(entries: Sequence[Mapping[str, Any]], database: str) -> list[dict[str, Any]]:
    names = [entry["name"] for entry in entries]
    if CANARY in names:
        raise ControllerError(
            "The canary is no workload of a suite's list: it runs first and last by itself "
            "(the suite's key canary)."
        )
    if len(set(names)) != len(names):
        raise ControllerError("A suite names the same workload twice: keep one of them.")
    return [
        {"name": entry["name"], "parameters": _complete(entry["name"], _given(entry, database))}
        for entry in entries
    ]


def _complete(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(registry.complete(name, given))
    except WorkloadError as error:
        raise ControllerError(str(error)) from error


def _given(entry: Mapping[str, Any], database: str) -> dict[str, Any]:
    """The suite's parameters; which database server there is, the target says, not the suite."""
    given = dict(entry.get("parameters") or {})
    return {"server": database, **given} if entry["name"] == "sql" else given


def _contrasts(suite: Mapping[str, Any], stacks: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Pairs declared before the first run; by default all to plain, and software to Opal."""
    names = [stack["name"] for stack in stacks]
    if "contrasts" in suite:
        pairs = [list(pair) for pair in suite["contrasts"]]
        for name in (name for pair in pairs for name in pair):
            if name not in names:
                raise ControllerError(unknown("configuration", str(name), names))
        return pairs
    kinds = {stack["name"]: stack["kind"] for stack in stacks}
    return [
        [first, second]
        for first in names
        for second in names
        if (kinds[first], kinds[second])
        in {
            *(("plain", kind) for kind in ("opal", "dmcrypt", "tcrypt")),
            *(("opal", kind) for kind in ("dmcrypt", "tcrypt")),
        }
    ]
