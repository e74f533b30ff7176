"""Entries with names of their own, repetitions, extra blocks, comparisons, and scales over them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from itertools import groupby
from typing import Any

import pytest

from agent.measure import seed_of
from contract import plan as plans
from contract.errors import ControllerError
from controller.planning.compiler import compile_plan
from controller.planning.known_names import suite_names
from controller.planning.suites import load_suite, scaled
from controller.tests.examples import NOW, plan, suite, target
from workloads import registry

ENTRIES: list[dict[str, Any]] = [
    {"name": "idle"},
    {"name": "file_io", "repeat": 2},
    {
        "name": "file_io-warm",
        "workload": "file_io",
        "parameters": {"cache": "warm"},
        "configurations": ["plain", "dmcrypt-aes128"],
    },
]
COMPARISON: dict[str, Any] = {
    "name": "caching",
    "question": "What does the page cache save?",
    "first": {"workload": "file_io", "phase": "read-large"},
    "second": {"workload": "file_io-warm", "phase": "read-large"},
    "per": "bytes",
}
EXTRA = {"blocks": 2, "configurations": ["opal", "plain"], "workloads": ["idle", "file_io-warm"]}


def whole(**changes: Any) -> dict[str, Any]:
    return plan(**{"workloads": ENTRIES, "extra": EXTRA, "comparisons": [COMPARISON], **changes})


def of_block(made: dict[str, Any], block: int) -> list[dict[str, Any]]:
    return [run for run in made["runs"] if run["block"] == block]


@pytest.mark.parametrize("name", suite_names())
def test_what_is_to_run_in_the_lab_fits_there(name: str) -> None:
    """Its disks hold 1 GiB, its guest has 3 GiB of memory and some 4 GiB free. What a workload
    needs of its assets is known there alone."""
    loaded = load_suite(name)
    scale = "lab" if "lab" in loaded.get("scales", ()) else None
    for entry in scaled(loaded, scale)["workloads"]:
        workload = registry.load(entry.get("workload", entry["name"]))
        if not workload.assets:
            given = registry.complete(workload.name, entry.get("parameters") or {})
            need = workload.needs(given, {})
            assert need.disk_bytes <= 0.95 * 2**30, entry["name"]
            assert max(need.memory_bytes, need.scratch_bytes) <= 2 * 2**30, entry["name"]


def test_a_seed_gives_the_order_that_it_gave_before() -> None:
    """Sums of the runs: who plans a suite again by its seed gets the same one."""
    document = target()
    stacks = document["configurations"]
    stacks.append({**stacks[-1], "name": "dmcrypt-aes256", "key_bits": 256})
    known = {
        "smoke": (3, "0d5b68e7208b1c9fd61cce9901d3e8092fe8760cbb610e7fcadb4de4d21386b4"),
        "overnight": (11, "7980c64c626a91db807d4f29272db35a1997a0713e8a0044ed0b56792efe6ea0"),
    }
    for name, (blocks, sha256) in known.items():
        suite = {**load_suite(name), "drift_check": {"every": 1000}, "blocks": blocks}
        runs = compile_plan(name, suite, document, seed=7, now=NOW)["runs"]
        found = hashlib.sha256(json.dumps(runs, sort_keys=True).encode()).hexdigest()
        assert found == sha256, name


def test_a_block_holds_each_entry_as_often_and_where_the_suite_says() -> None:
    made = whole()
    first = Counter((run["configuration"], run["workload"]) for run in of_block(made, 0))
    assert first == {
        **{(stack, "idle"): 1 for stack in ("plain", "opal", "dmcrypt-aes128")},
        **{(stack, "file_io"): 2 for stack in ("plain", "opal", "dmcrypt-aes128")},
        **{(stack, "file_io-warm"): 1 for stack in ("plain", "dmcrypt-aes128")},
    }
    assert made["workloads"][2]["workload"] == "file_io"
    assert "workload" not in made["workloads"][1], "the same as its name"
    assert made["workloads"][2]["parameters"]["cache"] == "warm"


def test_what_is_there_for_a_question_says_that_it_does_not_count() -> None:
    warm = {"name": "file_io-warm", "workload": "file_io", "overall": False}
    made = plan(workloads=[{"name": "file_io", "overall": True}, warm], comparisons=[], extra=None)
    assert [
        entry.get("overall") for entry in made["workloads"] if entry["name"] != "drift_check"
    ] == [
        None,
        False,
    ]


def test_repetitions_have_a_number_an_id_and_a_seed_of_their_own() -> None:
    made = whole()
    repeated = [r for r in of_block(made, 0) if r["workload"] == "file_io"]
    for run in repeated:
        assert run["run_id"].endswith(f"-{run['configuration']}-file_io.{run['repeat']}")
    assert sorted(run["repeat"] for run in repeated) == [0, 0, 0, 1, 1, 1]
    assert all("repeat" not in run for run in made["runs"] if run["workload"] != "file_io")
    parsed = plans.parse(made)
    seeds = {
        (run.workload, run.repeat): {
            seed_of(parsed, other)
            for other in parsed.runs
            if (other.block, other.workload, other.repeat) == (0, run.workload, run.repeat)
        }
        for run in parsed.runs
    }
    assert all(len(group) == 1 for group in seeds.values()), "the same on every configuration"
    assert len({min(group) for group in seeds.values()}) == len(seeds) == 4
    assert parsed.workloads["file_io-warm"].workload == "file_io"


def test_extra_blocks_follow_the_full_ones_and_the_drift_check_closes() -> None:
    made = whole(drift_check=True)
    assert made["blocks"] == 3
    assert made["extra_blocks"] == {"first": 3, "count": 2}
    for block in (3, 4):
        runs = [run for run in of_block(made, block) if run["workload"] != "drift_check"]
        assert Counter((run["configuration"], run["workload"]) for run in runs) == {
            ("plain", "idle"): 1,
            ("plain", "file_io-warm"): 1,
            ("opal", "idle"): 1,
        }
        assert len(list(groupby(run["configuration"] for run in runs))) == 2
    assert made["runs"][-1]["workload"] == "drift_check" and made["runs"][-1]["block"] == 4
    assert [run["index"] for run in made["runs"]] == list(range(len(made["runs"])))
    assert "extra_blocks" not in plan()


def test_a_longer_plan_begins_like_a_shorter_one_with_all_of_it() -> None:
    shorter, longer = whole(blocks=2)["runs"], whole(blocks=3)["runs"]
    full = [run for run in shorter if run["block"] < 2]
    assert longer[: len(full)] == full


def test_comparisons_are_written_out_with_the_configurations_that_have_both() -> None:
    found = whole()["analysis"]["comparisons"]
    assert found == [{**COMPARISON, "configurations": ["plain", "dmcrypt-aes128"]}]
    idle = {**COMPARISON, "second": {"workload": "idle"}, "configurations": ["opal"]}
    del idle["per"]
    found = whole(comparisons=[idle])["analysis"]["comparisons"]
    assert found[0]["second"] == {"workload": "idle", "phase": "all"}
    assert found[0]["per"] is None and found[0]["configurations"] == ["opal"]
    assert "comparisons" not in plan()["analysis"]


def test_chosen_configurations_leave_out_what_has_none_of_them() -> None:
    chosen = suite(workloads=ENTRIES, extra=EXTRA, comparisons=[COMPARISON])

    def made(*names: str) -> dict[str, Any]:
        return compile_plan("smoke", chosen, target(), seed=7, now=NOW, configurations=names)

    without = made("opal")
    assert [load["name"] for load in without["workloads"]] == ["idle", "file_io"]
    assert "comparisons" not in without["analysis"]
    assert without["extra_blocks"] == {"first": 3, "count": 2}
    assert {run["workload"] for run in of_block(without, 3)} == {"idle"}
    some = made("dmcrypt-aes128")
    assert some["analysis"]["comparisons"][0]["configurations"] == ["dmcrypt-aes128"]
    assert "extra_blocks" not in some, "none of its configurations is left"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"name": "file_io-warm", "workload": "fileio"}, "did you mean file_io"),
        ({"name": "file_io", "repeats": 2}, "did you mean repeat"),
        ({"name": "file_io", "repeat": 0}, "whole number from 1"),
        ({"name": "file_io", "repeat": True}, "whole number from 1"),
        ({"name": "file_io", "configurations": ["opel"]}, "did you mean opal"),
        ({"name": "file_io", "overall": 0}, "give true or false"),
        ({"name": "file_io", "configurations": []}, "give a list of names"),
        ({"name": "file_io", "configurations": "plain"}, "give a list of names"),
        ({"name": "file_io", "parameters": [1]}, "give names and values"),
        ({"name": "sql", "workload": "file_io"}, "sql is a workload itself"),
        ({"name": "file_io.2", "workload": "file_io"}, "cannot name an entry"),
        ({"name": "../x", "workload": "file_io"}, "cannot name an entry"),
        ({"name": "all", "workload": "file_io"}, "cannot name an entry"),
        ({"name": 3, "workload": "file_io"}, "cannot name an entry"),
        ({"name": "rest", "workload": "drift_check"}, "between blocks by itself"),
        ({"workload": "file_io"}, "give it a name"),
        ("file_io", "give it a name"),
    ],
)
def test_an_entry_that_cannot_be_is_told(entry: object, said: str) -> None:
    with pytest.raises(ControllerError, match=said):
        plan(workloads=[{"name": "idle"}, entry])


def test_a_suite_without_workloads_and_one_name_twice_are_refused() -> None:
    with pytest.raises(ControllerError, match="at least one workload"):
        plan(workloads=[])
    twice = [{"name": "big", "workload": "file_io"}, {"name": "big", "workload": "sql"}]
    with pytest.raises(ControllerError, match="twice: keep one big"):
        plan(workloads=twice)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (3, "give it blocks at least"),
        ({}, "blocks of extra are None"),
        ({"blocks": -1}, "give a whole number"),
        ({"blocks": 1, "workload": ["idle"]}, "did you mean workloads"),
        ({"blocks": 1, "workloads": ["idl"]}, "did you mean idle"),
        ({"blocks": 1, "workloads": "idle"}, "give a list of names"),
        ({"blocks": 1, "configurations": ["opel"]}, "did you mean opal"),
        ({"blocks": 1, "configurations": ["opal"], "workloads": ["file_io-warm"]}, "runs on its"),
    ],
)
def test_extra_blocks_that_cannot_be_are_told(extra: object, said: str) -> None:
    with pytest.raises(ControllerError, match=said):
        whole(extra=extra)


def test_no_extra_blocks_are_none() -> None:
    assert whole(extra={"blocks": 0}) == whole(extra=None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "A b"}, "name must be"),
        ({"questions": "x"}, "did you mean question"),
        ({"question": " "}, "say what it is to answer"),
        ({"per": "byte"}, "did you mean bytes"),
        ({"first": {"workload": "file_i"}}, "did you mean file_io"),
        ({"first": {"workload": "file_io", "fase": "x"}}, "did you mean phase"),
        ({"first": {"workload": "file_io", "phase": "read large"}}, "name one"),
        ({"first": None}, "give its workload and phase"),
        ({"first": COMPARISON["second"]}, "Both sides"),
        ({"configurations": ["opel"]}, "did you mean opal"),
        ({"configurations": ["opal", "plain"]}, "On opal the comparison caching lacks"),
    ],
)
def test_a_comparison_that_cannot_be_is_told(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ControllerError, match=said):
        whole(comparisons=[{**COMPARISON, **changes}])


def test_comparisons_are_a_list_each_with_its_own_name() -> None:
    with pytest.raises(ControllerError, match="give a list"):
        whole(comparisons=COMPARISON)
    with pytest.raises(ControllerError, match="same name"):
        whole(comparisons=[COMPARISON, COMPARISON])


def test_a_scale_changes_where_and_how_often_and_what_is_asked() -> None:
    lab = {
        "rapl_hz": 5,
        "extra": {"blocks": 1},
        "entries": {"file_io": {"repeat": 1}, "file_io-warm": {"configurations": ["plain"]}},
        "workloads": {"file_io-warm": {"large_mib": 8}},
        "comparisons": {"caching": {"question": "Here?", "first": {"workload": "idle"}}},
    }
    given = suite(workloads=ENTRIES, extra=EXTRA, comparisons=[COMPARISON], scales={"lab": lab})
    made = compile_plan("smoke", scaled(given, "lab"), target(), seed=7, now=NOW)
    assert Counter(run["workload"] for run in of_block(made, 0)) == {
        "idle": 3,
        "file_io": 3,
        "file_io-warm": 1,
    }
    assert made["rapl_hz"] == 5
    assert made["extra_blocks"] == {"first": 3, "count": 1}
    sizes = {load["name"]: load["parameters"] for load in made["workloads"]}
    assert sizes["file_io-warm"]["large_mib"] == 8 and sizes["file_io"]["large_mib"] == 64
    compared = made["analysis"]["comparisons"][0]
    assert compared["question"] == "Here?" and compared["configurations"] == ["plain"]
    assert compared["first"] == {"workload": "idle", "phase": "all"}
    assert given["workloads"] == ENTRIES and given["comparisons"] == [COMPARISON]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"entries": {"file_i": {"repeat": 1}}}, "did you mean file_io"),
        ({"entries": {"file_io": {"repeats": 1}}}, "did you mean repeat"),
        ({"entries": {"file_io": 3}}, "give names and values"),
        ({"comparisons": {"cashing": {}}}, "did you mean caching"),
        ({"comparisons": {"caching": {"per": "files"}}}, "no key of comparison caching"),
        ({"extra": 3}, "give names and values"),
    ],
)
def test_a_scale_that_names_what_is_not_there_is_told(change: dict[str, Any], said: str) -> None:
    given = suite(workloads=ENTRIES, extra=EXTRA, comparisons=[COMPARISON], scales={"lab": change})
    with pytest.raises(ControllerError, match=said):
        scaled(given, "lab")
