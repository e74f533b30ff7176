"""Plans: what a suite, a target and the options of a command become in plan.json."""

from __future__ import annotations

from typing import Any

import pytest

from contract import plan as plans
from contract.plan import Configuration, Watermark
from contract.tests.refusal import Refusal, refuses
from controller.planning.known_names import suite_names
from controller.planning.questions import plan_contrasts
from controller.planning.suites import at_scale, load_suite
from controller.tests.examples import compiled, plan, suite, target

METER = {"name": "m", "kind": "smartpower3", "port": "usb", "origin": "modelled"}
SYSTEM = {**METER, "channels": {"0": "system"}}


def names_of(frozen: plans.Plan) -> list[str]:
    return [configuration.name for configuration in frozen.configurations]


def test_the_same_arguments_give_the_same_frozen_plan() -> None:
    first, second = plan(), plan()
    assert first == second
    assert plans.parse(first).sha256 == plans.digest(second)
    assert compiled(suite(), seed=8).sha256 != first["sha256"]


def test_run_ids_and_defaults_are_written_out() -> None:
    frozen = compiled(suite())
    run = frozen.runs[0]
    assert run.run_id == f"0000-b00-{run.configuration}-{run.workload}"
    assert frozen.suite_id == "smoke-target-20260102T030405Z"
    assert frozen.entries["file_io"].parameters["small_files"]
    assert ("plain", "opal") in frozen.analysis.contrasts
    assert ("opal", "dmcrypt-aes128") in frozen.analysis.contrasts
    assert ("opal", "plain") not in frozen.analysis.contrasts


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_compiles_at_every_scale(name: str) -> None:
    loaded = load_suite(name)
    named = list(loaded.configurations)
    if disks := loaded.disks:
        named = [f"{name}-on-{disk}" for disk in disks for name in named]
    document = target_with(named)
    for scale in (None, *loaded.scales):
        names = names_of(compiled(at_scale(loaded, scale), document))
        assert names == (named or names), "whatever else the target has"


def target_with(names: list[str]) -> dict[str, Any]:
    """Return a target that has these configurations besides its own."""
    document = target()
    stacks = document["configurations"]
    existing_names = [stack["name"] for stack in stacks]
    for name in names:
        if name not in existing_names:
            disk = name.partition("-on-")[2] or stacks[-1]["disk"]
            stacks.append({**stacks[-1], "name": name, "disk": disk})
            document["disks"].setdefault(disk, {**document["disks"]["plain"], "serial": name})
    return document


ON_DISKS = {
    "disks": ["hdd", "ssd"],
    "configurations": ["plain", "dmcrypt-aes128", "opal"],
    "contrasts": [["plain", "dmcrypt-aes128"], ["plain", "opal"]],
    "workloads": [
        {"name": "idle", "parameters": {"seconds": 1}},
        {"name": "file_io", "configurations": ["plain"], "parameters": {}},
    ],
}


def test_a_suite_of_several_disks_uses_each_disks_configurations() -> None:
    names = [f"{name}-on-{disk}" for disk in ("hdd", "ssd") for name in ("plain", "dmcrypt-aes128")]
    frozen = compiled(suite(**ON_DISKS), target_with([*names, "opal-on-ssd"]))
    assert names_of(frozen) == [*names, "opal-on-ssd"]
    assert {"hdd", "ssd"} <= set(frozen.disks)
    assert frozen.analysis.contrasts == (
        ("plain-on-hdd", "dmcrypt-aes128-on-hdd"),
        ("plain-on-ssd", "dmcrypt-aes128-on-ssd"),
        ("plain-on-ssd", "opal-on-ssd"),
    )
    unencrypted = [
        Configuration(f"plain-on-{disk}", "plain", disk, encrypted_by="none")
        for disk in ("hdd", "ssd")
    ]
    without = suite(**{**ON_DISKS, "contrasts": []})
    assert plan_contrasts(without, unencrypted) == [("plain-on-hdd", "plain-on-ssd")]
    of_file_io = {run.configuration for run in frozen.runs if run.workload == "file_io"}
    assert of_file_io == {"plain-on-hdd", "plain-on-ssd"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"disks": ["hdd", "sdd"]}, refuses("unknown-name", nearest="did you mean ssd?")),
        (
            {"configurations": ["plain", "dmcrypt-serpent256"]},
            refuses("configuration-missing", configuration="dmcrypt-serpent256-on-hdd"),
        ),
    ],
)
def test_disks_without_configurations_are_refused(
    changes: dict[str, object], words: Refusal
) -> None:
    with words:
        compiled(suite(**{**ON_DISKS, **changes}), target_with(["plain-on-hdd", "plain-on-ssd"]))


def test_configurations_can_be_chosen_by_name() -> None:
    chosen = suite(configurations=["plain", "opal"], contrasts=[["plain", "opal"]])
    frozen = compiled(chosen, configurations=["plain", "dmcrypt-aes128"])
    assert names_of(frozen) == ["plain", "dmcrypt-aes128"]
    assert frozen.analysis.contrasts == (("plain", "dmcrypt-aes128"),)
    with refuses("configuration-not-in-inventory"):
        compiled(suite(), configurations=["dmcrypt-aes1"])


def test_entries_that_may_be_skipped_are_in_the_plan() -> None:
    assert compiled(suite(), skip=["idle"]).may_skip == ("idle",)
    assert plans.parse(plan()).may_skip == ()


def test_declared_contrasts_between_chosen_configurations_stay() -> None:
    chosen = suite(contrasts=[["opal", "plain"], ["plain", "dmcrypt-aes128"]])
    frozen = compiled(chosen, configurations=["plain", "opal"])
    assert frozen.analysis.contrasts == (("opal", "plain"),)


ONE_DISK = {
    "configurations": ["plain", "opal"],
    "contrasts": [["plain", "opal"]],
    "extra": {"blocks": 1, "configurations": ["plain"], "workloads": ["idle"]},
    "one_disk": {"plain": "sed-unlocked"},
}


def test_a_suite_runs_on_the_self_encrypting_disk_alone() -> None:
    alone = target_with(["sed-unlocked"])
    alone["configurations"] = [s for s in alone["configurations"] if s["name"] != "plain"]
    frozen = compiled(suite(**ONE_DISK), alone)
    assert names_of(frozen) == ["sed-unlocked", "opal"]
    assert frozen.analysis.contrasts == (("sed-unlocked", "opal"),)
    assert frozen.runs[-1].configuration == "sed-unlocked", "the extra block"


def test_one_disk_names_apply_only_if_needed_or_chosen() -> None:
    with_both_disks = target_with(["sed-unlocked"])
    assert names_of(compiled(suite(**ONE_DISK), with_both_disks)) == ["plain", "opal"]
    frozen = compiled(suite(**ONE_DISK), with_both_disks, configurations=["opal", "sed-unlocked"])
    assert frozen.analysis.contrasts == (("sed-unlocked", "opal"),)
    with refuses("unknown-name", nearest="did you mean plain?"):
        compiled(suite(**{**ONE_DISK, "one_disk": {"plian": "x"}}), with_both_disks)


@pytest.mark.parametrize(
    ("database", "parameters", "server"),
    [
        ("any", {}, "any"),
        ("mysql", {"rows": 5}, "mysql"),
        ("mysql", {"server": "mariadb"}, "mariadb"),
    ],
)
def test_the_suites_database_server_overrides_the_targets(
    database: str, parameters: dict[str, object], server: str
) -> None:
    chosen = suite(workloads=[{"name": "sql", "parameters": parameters}])
    frozen = compiled(chosen, {**target(), "database": database})
    assert frozen.workloads[0].parameters["server"] == server


def test_the_watermark_suits_the_slowest_meter() -> None:
    frozen = compiled(suite(), {**target(), "meters": [SYSTEM]})
    assert frozen.watermark == Watermark(chip_s=0.105, pad_s=0.5)
    assert plans.parse(frozen.document()).watermark == frozen.watermark
    slower = {**SYSTEM, "name": "meter1", "settings": {"interval_ms": 1000}}
    frozen = compiled(suite(), {**target(), "meters": [SYSTEM, slower]})
    assert frozen.watermark == Watermark(chip_s=1.3, pad_s=3.0)


def test_no_watermark_without_a_meter_or_if_switched_off() -> None:
    assert plan()["watermark"] is None
    metered = {**target(), "meters": [SYSTEM]}
    assert compiled(suite(watermark=False), metered).document()["watermark"] is None


@pytest.mark.parametrize(("interval_ms", "pad_s"), [(100, 0), (500, 2), (1000, 4)])
def test_phases_are_padded_for_a_slow_meter_only(interval_ms: int, pad_s: float) -> None:
    assert plan()["pad_s"] == 0
    metered = {**target(), "meters": [{**SYSTEM, "settings": {"interval_ms": interval_ms}}]}
    frozen = compiled(suite(), metered)
    assert frozen.pad_s == plans.parse(frozen.document()).pad_s == pad_s


@pytest.mark.parametrize(
    ("meter", "message"),
    [
        ({"kind": "smartpowr3"}, refuses("unknown-name", nearest="did you mean smartpower3?")),
        ({"channels": {"9": "system"}}, refuses("unknown-channel", channel="9")),
    ],
)
def test_an_invalid_meter_is_refused(meter: dict[str, object], message: Refusal) -> None:
    with message:
        compiled(suite(), {**target(), "meters": [{**SYSTEM, **meter}]})


def test_the_first_meter_that_has_a_channel_is_its_reference() -> None:
    meters = [
        {**METER, "name": name, "channels": channels}
        for name, channels in (("a", {"0": "drive"}), ("b", {"0": "system", "1": "drive"}))
    ]
    frozen = compiled(load_suite("smoke"), {**target(), "meters": meters}, configurations=["plain"])
    assert frozen.reference_meters == {"drive": "a", "system": "b"}


@pytest.mark.parametrize("blocks", [0, -1, 10_001])
def test_a_plan_without_blocks_is_refused(blocks: int) -> None:
    with refuses("block-count", most=10000):
        compiled(suite(), blocks=blocks)


def test_the_drift_check_runs_first_and_last_on_the_baseline() -> None:
    frozen, without = compiled(suite(drift_check=True)), compiled(suite())
    assert without.document()["drift_check"] is None
    assert frozen.document()["drift_check"] == {
        "workload": "drift_check",
        "configuration": "plain",
        "limit": 0.01,
        "every": 1,
    }
    runs = frozen.runs
    assert [run.run_id for run in (runs[0], runs[-1])] == [
        "0000-b00-plain-drift_check",
        f"{len(runs) - 1:04d}-b02-plain-drift_check",
    ]
    between, others = (
        [(r.block, r.configuration, r.workload) for r in each.runs if r.workload != "drift_check"]
        for each in (frozen, without)
    )
    assert between == others
    assert [run.index for run in runs] == list(range(len(runs)))
    assert frozen.entries["drift_check"].parameters == {"seconds": 10}


@pytest.mark.parametrize(
    ("every", "before"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (4, [0, 4]), (9, [0])]
)
def test_the_drift_check_runs_between_blocks(every: int, before: list[int]) -> None:
    frozen = compiled(suite(drift_check={"every": every}, blocks=5))
    runs = frozen.runs
    checks = [run.index for run in runs if run.workload == "drift_check"]
    assert [runs[index].block for index in checks] == [*before, 4]
    for index in checks[1:-1]:
        assert runs[index - 1].block < runs[index].block == runs[index + 1].block
    assert checks[-1] == len(runs) - 1
    assert frozen.workloads[-1].parameters == {"seconds": 10}


def test_the_drift_check_runs_on_the_unencrypted_configuration() -> None:
    described = target()
    described["configurations"][0]["name"] = "bare"
    described["configurations"].reverse()
    frozen = compiled(suite(drift_check={"seconds": 2}), described)
    assert frozen.drift_check and frozen.drift_check.configuration == "bare"
    assert frozen.document()["workloads"][-1] == {
        "name": "drift_check",
        "parameters": {"seconds": 2},
    }
    frozen = compiled(suite(drift_check=True), configurations=["opal", "dmcrypt-aes128"])
    assert frozen.drift_check and frozen.drift_check.configuration == "opal", "without a plain one"


def test_a_suite_preconditions_only_on_request() -> None:
    assert "precondition" not in plan() and plan()["discard_first"]
    assert "precondition" not in plan(precondition=False)
    assert not any(load_suite(name).precondition for name in suite_names())


def test_preconditioning_has_the_specifications_defaults_and_disables_discard() -> None:
    defaults = {"passes": 2, "rounds": 25, "round_s": 60, "access": "sequential"}
    assert plan(precondition=True)["precondition"] == defaults
    frozen = plan(precondition={"rounds": 7, "access": "random"})
    assert frozen["precondition"] == {**defaults, "rounds": 7, "access": "random"}
    assert frozen["discard_first"] is False
    parsed = plans.parse(frozen)
    assert parsed.precondition is not None
    assert parsed.precondition.most_bytes(parsed.extent) == 9 * 2**30
    with refuses("precondition-and-discard"):
        plan(precondition=True, discard_first=True)
