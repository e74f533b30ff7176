"""Plans: the same seed gives the same order, each block is whole, and misspelt names are told."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import plan as plans
from contract.errors import ControllerError
from controller.planning.compiler import compile_plan
from controller.planning.known_names import suite_names
from controller.planning.questions import contrasts
from controller.planning.schedule import Turn
from controller.planning.schedule import order as order_of
from controller.planning.suites import load_suite, scaled
from controller.tests.examples import NOW, plan, suite, target


def order(stacks: list[str], loads: list[str], *, blocks: int, seed: int) -> list[dict[str, Any]]:
    """Of workloads that run once on every configuration."""
    turns = [Turn(load, tuple(stacks)) for load in loads]
    return order_of(stacks, turns, blocks=blocks, seed=seed)


NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)


@given(NAMES, NAMES, st.integers(1, 5), st.integers(0, 2**32))
def test_each_block_enters_each_configuration_once_and_does_every_workload_there(
    stacks: list[str], loads: list[str], blocks: int, seed: int
) -> None:
    runs = order(stacks, loads, blocks=blocks, seed=seed)
    assert [run["index"] for run in runs] == list(range(len(runs)))
    for block in range(blocks):
        mine = [run for run in runs if run["block"] == block]
        assert Counter((run["configuration"], run["workload"]) for run in mine) == Counter(
            (stack, load) for stack in stacks for load in loads
        )
        entered = [name for name, _ in groupby(run["configuration"] for run in mine)]
        assert sorted(entered) == sorted(stacks)
    assert [run["block"] for run in runs] == sorted(run["block"] for run in runs)


@given(NAMES, st.integers(2, 5), st.integers(0, 2**32))
def test_a_block_begins_with_the_configuration_that_the_one_before_ended_with(
    stacks: list[str], blocks: int, seed: int
) -> None:
    """So each follows itself as often as any other, and what it leaves behind cancels."""
    runs = order(stacks, ["load"], blocks=blocks, seed=seed)
    borders = [(a, b) for a, b in pairwise(runs) if a["block"] != b["block"]]
    assert len(borders) == blocks - 1
    assert all(a["configuration"] == b["configuration"] for a, b in borders)


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_a_longer_plan_begins_like_a_shorter_one(seed: int, blocks: int) -> None:
    shorter = order(["a", "b", "c"], ["x", "y"], blocks=blocks, seed=seed)
    longer = order(["a", "b", "c"], ["x", "y"], blocks=blocks + 1, seed=seed)
    assert longer[: len(shorter)] == shorter


def test_order_changes_with_the_seed_and_between_blocks() -> None:
    stacks, loads = list("abcd"), list("uvwxyz")
    runs = order(stacks, loads, blocks=2, seed=1)
    assert order(stacks, loads, blocks=2, seed=2) != runs

    def names(block: int) -> list[tuple[str, str]]:
        return [(r["configuration"], r["workload"]) for r in runs if r["block"] == block]

    assert names(0) != names(1)


def test_every_position_is_taken_by_every_configuration() -> None:
    """No configuration may own the cold start of the blocks."""
    first = Counter(
        order(["a", "b", "c"], ["x"], blocks=1, seed=seed)[0]["configuration"]
        for seed in range(300)
    )
    assert all(70 <= first[name] <= 130 for name in "abc")


def test_the_same_arguments_give_the_same_frozen_plan() -> None:
    first, second = plan(), plan()
    assert first == second
    assert plans.parse(first).sha256 == plans.digest(second)
    assert compile_plan("smoke", suite(), target(), seed=8, now=NOW)["sha256"] != first["sha256"]


def test_run_ids_and_defaults_are_written_out() -> None:
    made = plan()
    run = made["runs"][0]
    assert run["run_id"] == f"0000-b00-{run['configuration']}-{run['workload']}"
    assert made["suite_id"] == "smoke-target-20260102T030405Z"
    file_io = next(load for load in made["workloads"] if load["name"] == "file_io")
    assert file_io["parameters"]["small_files"] > 0
    assert ["plain", "opal"] in made["analysis"]["contrasts"]
    assert ["opal", "dmcrypt-aes128"] in made["analysis"]["contrasts"]
    assert ["opal", "plain"] not in made["analysis"]["contrasts"]


def test_every_suite_there_is_compiles() -> None:
    assert {"smoke", "micro", "paper"} <= set(suite_names())
    for name in suite_names():
        loaded = load_suite(name)
        named = loaded.get("configurations", [])
        if disks := loaded.get("disks"):
            named = [f"{name}-on-{disk}" for disk in disks for name in named]
        document = target_with(named)
        for scale in (None, *loaded.get("scales", ())):
            made = compile_plan(name, scaled(loaded, scale), document, seed=1)
            names = [stack["name"] for stack in made["configurations"]]
            if "factors" in loaded:
                assert set(loaded["configurations"]) < set(names)
                continue
            assert names == (named or names), "whatever else the target has"


def target_with(names: list[str]) -> dict[str, Any]:
    """A target that has these configurations besides its own."""
    document = target()
    stacks = document["configurations"]
    known = [stack["name"] for stack in stacks]
    for name in names:
        if name not in known:
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


def test_a_suite_of_several_disks_has_what_there_is_on_each() -> None:
    names = [f"{name}-on-{disk}" for disk in ("hdd", "ssd") for name in ("plain", "dmcrypt-aes128")]
    made = compile_plan(
        "smoke", suite(**ON_DISKS), target_with([*names, "opal-on-ssd"]), seed=7, now=NOW
    )
    assert [stack["name"] for stack in made["configurations"]] == [*names, "opal-on-ssd"]
    assert {"hdd", "ssd"} <= set(made["disks"])
    assert made["analysis"]["contrasts"] == [names[:2], names[2:], ["plain-on-ssd", "opal-on-ssd"]]
    entries = [{**entry, "encrypted_by": "none"} for entry in made["configurations"][::2]]
    assert contrasts({"disks": ["hdd", "ssd"], "contrasts": []}, entries[:2]) == [
        ["plain-on-hdd", "plain-on-ssd"]
    ]
    of_file_io = {run["configuration"] for run in made["runs"] if run["workload"] == "file_io"}
    assert of_file_io == {"plain-on-hdd", "plain-on-ssd"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"disks": "hdd"}, "list of names"),
        ({"disks": ["hdd", "sdd"]}, "did you mean ssd"),
        (
            {"configurations": ["plain", "dmcrypt-serpent256"]},
            "no configuration dmcrypt-serp.*-hdd",
        ),
    ],
)
def test_disks_that_carry_nothing_are_refused(changes: dict[str, object], words: str) -> None:
    there = target_with(["plain-on-hdd", "plain-on-ssd"])
    with pytest.raises(ControllerError, match=words):
        compile_plan("smoke", suite(**{**ON_DISKS, **changes}), there, seed=7, now=NOW)


def test_other_configurations_than_the_suites_are_chosen_by_name() -> None:
    chosen = suite(configurations=["plain", "opal"], contrasts=[["plain", "opal"]])
    made = compile_plan(
        "smoke", chosen, target(), seed=7, now=NOW, configurations=["plain", "dmcrypt-aes128"]
    )
    assert [stack["name"] for stack in made["configurations"]] == ["plain", "dmcrypt-aes128"]
    assert made["analysis"]["contrasts"] == [["plain", "dmcrypt-aes128"]]
    with pytest.raises(ControllerError, match="--configurations"):
        compile_plan("smoke", suite(), target(), seed=7, now=NOW, configurations=["dmcrypt-aes1"])


def test_only_what_the_suite_has_may_be_skipped() -> None:
    made = compile_plan("smoke", suite(), target(), seed=7, now=NOW, skip=["idle"])
    assert plans.parse(made).may_skip == ("idle",)
    assert plans.parse(plan()).may_skip == ()
    with pytest.raises(ControllerError, match="did you mean idle"):
        compile_plan("smoke", suite(), target(), seed=7, now=NOW, skip=["idel"])


def test_declared_contrasts_between_chosen_configurations_stay() -> None:
    chosen = suite(contrasts=[["opal", "plain"], ["plain", "dmcrypt-aes128"]])
    made = compile_plan(
        "smoke", chosen, target(), seed=7, now=NOW, configurations=["plain", "opal"]
    )
    assert made["analysis"]["contrasts"] == [["opal", "plain"]]


ONE_DISK = {
    "configurations": ["plain", "opal"],
    "contrasts": [["plain", "opal"]],
    "extra": {"blocks": 1, "configurations": ["plain"], "workloads": ["idle"]},
    "one_disk": {"plain": "sed-unlocked"},
}


def test_a_suite_runs_on_the_self_encrypting_disk_alone() -> None:
    alone = target_with(["sed-unlocked"])
    alone["configurations"] = [s for s in alone["configurations"] if s["name"] != "plain"]
    made = compile_plan("smoke", suite(**ONE_DISK), alone, seed=7, now=NOW)
    assert [stack["name"] for stack in made["configurations"]] == ["sed-unlocked", "opal"]
    assert made["analysis"]["contrasts"] == [["sed-unlocked", "opal"]]
    assert made["runs"][-1]["configuration"] == "sed-unlocked", "the extra block"


def test_one_disk_is_taken_only_where_it_is_meant() -> None:
    both = target_with(["sed-unlocked"])
    made = compile_plan("smoke", suite(**ONE_DISK), both, seed=7, now=NOW)
    assert [stack["name"] for stack in made["configurations"]] == ["plain", "opal"]
    names = ["opal", "sed-unlocked"]
    made = compile_plan("smoke", suite(**ONE_DISK), both, seed=7, now=NOW, configurations=names)
    assert made["analysis"]["contrasts"] == [["sed-unlocked", "opal"]]
    with pytest.raises(ControllerError, match="did you mean plain"):
        compile_plan(
            "smoke", suite(**{**ONE_DISK, "one_disk": {"plian": "x"}}), both, seed=7, now=NOW
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"configurations": True},
        {"configurations": ["plain", 5, None]},
        {"one_disk": {"plain": ["sed-unlocked"]}},
        {"one_disk": {5: "sed-unlocked"}},
    ],
    ids=str,
)
def test_configurations_that_are_no_names_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ControllerError, match="name"):
        compile_plan("smoke", suite(**{**ONE_DISK, **changes}), target(), seed=7, now=NOW)


def test_the_database_server_is_the_targets_choice_unless_the_suite_names_one() -> None:
    def server(database: str | None, parameters: dict[str, object]) -> object:
        document = {**target(), **({"database": database} if database else {})}
        chosen = suite(workloads=[{"name": "sql", "parameters": parameters}])
        made = compile_plan("smoke", chosen, document, seed=7, now=NOW)
        return made["workloads"][0]["parameters"]["server"]

    assert server(None, {}) == "any"
    assert server("mysql", {"rows": 5}) == "mysql"
    assert server("mysql", {"server": "mariadb"}) == "mariadb"


@pytest.mark.parametrize(
    ("changes", "near"),
    [
        ({"workloads": [{"name": "fileio"}]}, "file_io"),
        ({"workloads": [{"name": "file_io", "parameters": {"small_file": 1}}]}, "small_files"),
        ({"configurations": ["plian"]}, "plain"),
        ({"contrasts": [["plain", "opel"]]}, "opal"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(changes: dict[str, object], near: str) -> None:
    with pytest.raises(ControllerError, match=f"did you mean {near}"):
        plan(**changes)


def test_unknown_suites_and_keys_are_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ControllerError, match="did you mean smoke"):
        load_suite("smok")
    (tmp_path / "mine.yml").write_text("summary: x\nblokcs: 3\n", encoding="utf-8")
    with pytest.raises(ControllerError, match="did you mean blocks"):
        load_suite("mine", tmp_path)
    (tmp_path / "mine.yml").write_text("summary: x\n", encoding="utf-8")
    with pytest.raises(ControllerError, match="lacks the key 'blocks'"):
        load_suite("mine", tmp_path)


def test_the_watermark_suits_the_slowest_meter() -> None:
    meter = {"name": "meter0", "kind": "smartpower3", "channels": {"0": "system"}}
    document = {**target(), "meters": [meter]}
    made = compile_plan("smoke", suite(), document, seed=7, now=NOW)
    assert made["watermark"] == {"chip_s": 0.105, "pad_s": 0.5}
    parsed = plans.parse(made).watermark
    assert parsed == plans.Watermark(chip_s=0.105, pad_s=0.5)
    slower = {**meter, "name": "meter1", "settings": {"interval_ms": 1000}}
    document["meters"] = [meter, slower]
    made = compile_plan("smoke", suite(), document, seed=7, now=NOW)
    assert made["watermark"] == {"chip_s": 1.3, "pad_s": 3.0}


def test_phases_are_padded_for_a_slow_meter_only() -> None:
    assert plan()["pad_s"] == 0
    meter = {"name": "meter0", "kind": "smartpower3", "channels": {"0": "system"}}
    for interval_ms, pad_s in ((100, 0), (500, 2), (1000, 4)):
        document = {**target(), "meters": [{**meter, "settings": {"interval_ms": interval_ms}}]}
        made = compile_plan("smoke", suite(), document, seed=7, now=NOW)
        assert made["pad_s"] == pad_s
        assert plans.parse(made).pad_s == pad_s


def test_a_watermark_that_nobody_sees_or_wants_is_not_planned() -> None:
    assert plan()["watermark"] is None
    meter = {"name": "meter0", "kind": "smartpower3", "channels": {"0": "system"}}
    document = {**target(), "meters": [meter]}
    made = compile_plan("smoke", suite(watermark=False), document, seed=7, now=NOW)
    assert made["watermark"] is None
    assert plans.parse(made).watermark is None


@pytest.mark.parametrize(
    ("meter", "change", "message"),
    [
        ({"kind": "smartpowr3"}, {}, "smartpower3"),
        ({"channels": {"9": "system"}}, {}, "has no channel 9"),
        ({}, {"watermark": "no"}, "true or false"),
    ],
)
def test_meters_and_wishes_that_make_no_watermark_are_told(
    meter: dict[str, object], change: dict[str, object], message: str
) -> None:
    one = {"name": "meter0", "kind": "smartpower3", "channels": {"0": "system"}, **meter}
    with pytest.raises(ControllerError, match=message):
        compile_plan("smoke", suite(**change), {**target(), "meters": [one]}, seed=7, now=NOW)


@pytest.mark.parametrize("blocks", [0, -1])
def test_a_plan_without_blocks_is_refused(blocks: int) -> None:
    with pytest.raises(ControllerError, match="from 1 to 10000 blocks"):
        compile_plan("smoke", suite(), target(), seed=1, blocks=blocks)


def test_the_same_workload_twice_is_refused() -> None:
    with pytest.raises(ControllerError, match="twice"):
        plan(workloads=[{"name": "idle"}, {"name": "idle"}])


@pytest.mark.parametrize("key", ["margin", "half_width"])
@pytest.mark.parametrize("value", [0, 1, -0.1, True, "2 %"])
def test_a_margin_is_a_share(key: str, value: object) -> None:
    with pytest.raises(ControllerError, match=f"key {key} is .*: give a share"):
        compile_plan("smoke", suite(**{key: value}), target(), seed=1)


def test_the_plan_says_when_its_suite_may_be_looked_at() -> None:
    assert plan()["analysis"]["looks"] == "end"
    assert plan(looks="any")["analysis"]["looks"] == "any"
    with pytest.raises(ControllerError, match=r"key looks is 'often': say end .* or any"):
        plan(looks="often")


def test_the_plan_names_its_precision_and_its_pilot() -> None:
    made = compile_plan("smoke", suite(), target(), seed=1, blocks=17, pilot="p-1")
    assert made["blocks"] == 17
    assert made["analysis"] == {**made["analysis"], "half_width": 0.005, "pilot": "p-1"}


def test_the_drift_check_runs_first_and_last_on_the_baseline() -> None:
    made, without = plan(drift_check=True), plan()
    assert without["drift_check"] is None
    assert made["drift_check"] == {
        "workload": "drift_check",
        "configuration": "plain",
        "limit": 0.01,
        "every": 1,
    }
    runs = made["runs"]
    assert [run["run_id"] for run in (runs[0], runs[-1])] == [
        "0000-b00-plain-drift_check",
        f"{len(runs) - 1:04d}-b02-plain-drift_check",
    ]
    key = ("block", "configuration", "workload")
    between = [[r[name] for name in key] for r in runs if r["workload"] != "drift_check"]
    assert between == [[run[name] for name in key] for run in without["runs"]]
    assert [run["index"] for run in runs] == list(range(len(runs)))
    assert plans.parse(made).workloads["drift_check"].parameters == {"seconds": 10}


@pytest.mark.parametrize(
    ("every", "before"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (4, [0, 4]), (9, [0])]
)
def test_the_drift_check_stands_between_blocks(every: int, before: list[int]) -> None:
    made = plan(drift_check={"every": every}, blocks=5)
    runs = made["runs"]
    checks = [run["index"] for run in runs if run["workload"] == "drift_check"]
    assert [runs[index]["block"] for index in checks] == [*before, 4]
    for index in checks[1:-1]:
        assert runs[index - 1]["block"] < runs[index]["block"] == runs[index + 1]["block"]
    assert checks[-1] == len(runs) - 1
    assert made["workloads"][-1]["parameters"] == {"seconds": 10}


def test_the_drift_check_baseline_is_the_one_that_all_is_a_ratio_to() -> None:
    document = target()
    document["configurations"][0]["name"] = "bare"
    document["configurations"].reverse()
    made = compile_plan("smoke", suite(drift_check={"seconds": 2}), document, seed=7, now=NOW)
    assert made["drift_check"]["configuration"] == "bare"
    assert made["workloads"][-1] == {"name": "drift_check", "parameters": {"seconds": 2}}
    chosen = ["opal", "dmcrypt-aes128"]
    made = compile_plan(
        "smoke", suite(drift_check=True), target(), seed=7, now=NOW, configurations=chosen
    )
    assert made["drift_check"]["configuration"] == "opal", "without a plain one, the first"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drift_check": "yes"}, "say true, false, or its parameters"),
        ({"drift_check": {"second": 3}}, "did you mean seconds"),
        ({"drift_check": {"every": 0}}, "key every is 0: say after how many blocks"),
        ({"drift_check": {"every": True}}, "key every is True: say after how many blocks"),
        ({"workloads": [{"name": "drift_check"}]}, "runs between blocks by itself"),
    ],
)
def test_a_drift_check_that_cannot_be_is_told(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ControllerError, match=message):
        plan(**changes)


def test_a_scale_changes_single_sizes_and_is_named_in_the_plan() -> None:
    scale = {
        "blocks": 2,
        "drift_check": {"seconds": 1},
        "workloads": {"file_io": {"large_mib": 8}, "idle": {"seconds": 1}},
    }
    both = suite(
        workloads=[{"name": "idle"}, {"name": "file_io", "parameters": {"small_files": 3}}],
        scales={"lab": scale},
    )
    made = compile_plan("smoke", scaled(both, "lab"), target(), seed=7, now=NOW)
    sizes = {load["name"]: load["parameters"] for load in made["workloads"]}
    assert made["scale"] == "lab: for tests" and made["blocks"] == 2
    assert sizes["file_io"]["large_mib"] == 8 and sizes["file_io"]["small_files"] == 3
    assert sizes["idle"] == {"seconds": 1.0} and sizes["drift_check"] == {"seconds": 1}
    whole = compile_plan("smoke", scaled(both, None), target(), seed=7, now=NOW)
    assert whole["scale"] == "for tests" and whole["blocks"] == 3


@pytest.mark.parametrize(
    ("scales", "scale", "message"),
    [
        ({"lab": {}}, "lap", "did you mean lab"),
        (None, "lab", "leave --scale lab out"),
        ({"lab": {"block": 1}}, "lab", "did you mean blocks"),
        ({"lab": {"margin": 0.1}}, "lab", "key of scale lab"),
        ({"lab": {"workloads": {"file_i": {}}}}, "lab", "did you mean file_io"),
        ({"lab": {"workloads": {"file_io": 3}}}, "lab", "give names and values"),
        ({"lab": 3}, "lab", "give names and values"),
        ([1], "lab", "give names and values"),
    ],
)
def test_a_scale_that_cannot_be_is_told(scales: object, scale: str, message: str) -> None:
    with pytest.raises(ControllerError, match=message):
        scaled(suite(scales=scales), scale)


def test_a_suite_is_not_preconditioned_unless_it_asks_for_it() -> None:
    assert "precondition" not in plan() and plan()["discard_first"]
    assert "precondition" not in plan(precondition=False)
    for name in suite_names():
        assert not load_suite(name).get("precondition")


def test_preconditioning_takes_the_specifications_numbers_and_ends_discarding() -> None:
    whole = {"passes": 2, "rounds": 25, "round_s": 60, "access": "sequential"}
    assert plan(precondition=True)["precondition"] == whole
    made = plan(precondition={"rounds": 7, "access": "random"})
    assert made["precondition"] == {**whole, "rounds": 7, "access": "random"}
    assert made["discard_first"] is False
    parsed = plans.parse(made)
    assert parsed.precondition is not None
    assert parsed.precondition.most_bytes(parsed.storage.extent) == 9 * 2**30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precondition": True, "discard_first": True}, "take one of them out"),
        ({"precondition": "yes"}, "precondition is 'yes': it must be true, false, or its passes"),
        ({"precondition": {"pases": 2}}, "did you mean passes"),
        ({"precondition": {"passes": 0}}, "passes of precondition are 0: .* from 1 to 10"),
        ({"precondition": {"passes": True}}, "passes of precondition are True"),
        ({"precondition": {"rounds": 4}}, "rounds of precondition are 4: .* from 5 to 25"),
        ({"precondition": {"rounds": 26}}, "rounds of precondition are 26"),
        ({"precondition": {"round_s": 0}}, "round_s of precondition is 0"),
        ({"precondition": {"access": "randm"}}, "did you mean random"),
    ],
)
def test_a_preconditioning_that_cannot_be_is_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ControllerError, match=message):
        plan(**changes)


def test_a_scale_may_precondition_in_smaller_numbers() -> None:
    loaded = suite(precondition=True, scales={"lab": {"precondition": {"rounds": 5}}})
    made = compile_plan("smoke", scaled(loaded, "lab"), target(), seed=7, now=NOW)
    assert made["precondition"]["rounds"] == 5


def test_the_first_meter_that_has_a_channel_is_its_reference() -> None:
    meters = [
        {"name": name, "kind": "smartpower3", "channels": channels}
        for name, channels in (("a", {"0": "drive"}), ("b", {"0": "system", "1": "drive"}))
    ]
    where = {**target(), "meters": meters}
    plan = compile_plan("smoke", load_suite("smoke"), where, seed=1, configurations=["plain"])
    assert plan["reference_meters"] == {"drive": "a", "system": "b"}
