"""Suite files: what is refused and where, entries, extra blocks, comparisons, and scales."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from agent.measure import seed_of
from contract import plan as plans
from contract import schema
from contract.plan import Plan, Run, Side
from contract.tests.refusal import Refusal, refuses
from controller.planning.known_names import suite_names
from controller.planning.suites import DriftCheck, Suite, at_scale, load_suite
from controller.tests.examples import compiled, plan, suite, target
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


def full_suite(**changes: Any) -> Suite:
    """Parse a suite with entries, extra blocks and a comparison."""
    return suite(**{"workloads": ENTRIES, "extra": EXTRA, "comparisons": [COMPARISON], **changes})


def of_block(frozen: Plan, block: int) -> list[Run]:
    return [run for run in frozen.runs if run.block == block]


def unknown(nearest: str) -> Refusal:
    """Expect an unknown name, and this one named instead."""
    return refuses("unknown-name", nearest=f"did you mean {nearest}?")


# What a suite cannot be: the place of the fault, and what must be there. How a type, a range or an
# unknown key is refused at any place: contract/tests/test_schema.py.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"blokcs": 3}, "'blokcs'", "did you mean blocks"),
    ({"blocks": 0}, "blocks is 0", "at least 1"),
    ({"blocks": 10**4 + 1}, "blocks is 10001", "at most 10000"),
    ({"rapl_hz": 1e12}, "rapl_hz is 1000000000000.0", "at most 1000"),
    ({"tail_s": float("nan")}, "tail_s is nan", "at least 0"),
    ({"run_limit_s": float("inf")}, "run_limit_s is inf", "at most"),
    ({"one_disk": {5: "sed-unlocked"}}, "a key of one_disk is 5", "text"),
    *(
        ({"margin": value}, f"margin is {value!r}", "a number above 0 and below 1")
        for value in (0, 1, True, "2 %")
    ),
    ({"drift_check": {"every": 0}}, "drift_check.every is 0", "at least 1"),
    ({"precondition": {"pases": 2}}, "'precondition.pases'", "did you mean passes"),
    ({"precondition": {"passes": 0}}, "precondition.passes is 0", "at least 1 and at most 10"),
    ({"precondition": {"rounds": 4}}, "precondition.rounds is 4", "at least 5 and at most 25"),
    ({"precondition": {"round_s": 0}}, "precondition.round_s is 0", "above 0"),
    ({"workloads": []}, "workloads is empty", "at least 1"),
    ({"scales": {True: {}}}, "a key of scales is True", "must be text"),
    ({"scales": {"lab": None}}, "scales.lab is None", "a mapping"),
    *(
        ({"workloads": [{"name": "idle"}, entry]}, rf"workloads\[1\]{place}", word)
        for entry, place, word in (
            ({"name": "file_io", "repeats": 2}, ".repeats'", "did you mean repeat"),
            ({"name": "file_io", "repeat": 0}, ".repeat is 0", "at least 1 and at most 1000"),
            ({"name": "file_io", "configurations": []}, ".configurations", "at least 1"),
            ({"name": "file_io", "parameters": {"a": [1]}}, ".parameters.a", "text"),
            ({"name": "file_io.2", "workload": "file_io"}, ".name is", "lower-case"),
            ({"name": "../x", "workload": "file_io"}, ".name is", "lower-case"),
        )
    ),
    ({"extra": {"blocks": -1}}, "extra.blocks is -1", "at least 0"),
    *(
        ({"comparisons": [{**COMPARISON, **change}]}, rf"comparisons\[0\]\.{place}", word)
        for change, place, word in (
            ({"name": "A b"}, "name is", "lower-case"),
            ({"question": " "}, "question is ' '", "a question"),
            ({"first": {"workload": "idle", "phase": "a b"}}, "first.phase is", "write-large"),
        )
    ),
    *(
        ({"scales": {"lab": change}}, f"scales.lab{place}", word)
        for change, place, word in (
            ({"margin": 0.1}, ".margin'", ""),
            ({"entries": {"file_io": {"repeats": 1}}}, ".entries.file_io.rep", "mean repeat"),
            ({"comparisons": {"caching": {"per": "x"}}}, ".comparisons.caching.per'", "there are"),
        )
    ),
]


@pytest.mark.parametrize(("changes", "place", "word"), REFUSED)
def test_an_invalid_value_is_refused_with_its_place(
    changes: dict[str, Any], place: str, word: str
) -> None:
    with refuses("suite-invalid", suite="smoke") as refusal:
        suite(**changes)
    assert re.search(rf"{place}.*(?:{word})", str(refusal.value.facts["error"]))


# Each line refers nine times to the one before.
NINEFOLD = "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("summary: x\n", refuses("suite-invalid", error="'blocks' is missing")),
        ("- summary\n", refuses("suite-invalid")),
        ("", refuses("suite-invalid")),
        ("a: b: c", refuses("not-yaml")),
        ("[" * 5000, refuses("not-yaml", error="it is nested too deeply")),
        ("!!python/object/apply:os.system ['true']\n", refuses("not-yaml")),
        ("summary: &a [*a]\n", refuses("suite-invalid")),
        (f"summary: x\nblocks: 0x{'f' * 9000}\n", refuses("suite-invalid")),
        (f"a0: &a0 [{'x, ' * 9}]\n{NINEFOLD}summary: *a8\n", refuses("suite-invalid")),
    ],
    ids=["missing", "list", "empty", "no-yaml", "deep", "tag", "alias", "number", "ninefold"],
)
def test_a_file_that_is_no_suite_is_refused(tmp_path: Path, text: str, word: Refusal) -> None:
    (tmp_path / "mine.yml").write_text(text, encoding="utf-8")
    with word:
        load_suite("mine", tmp_path)
    with unknown("smoke"):
        load_suite("smok")


@pytest.mark.parametrize("name", suite_names())
def test_suites_at_lab_scale_fit_the_lab(name: str) -> None:
    """Require what the lab has: disks of 1 GiB, 3 GiB of memory, some 4 GiB free.

    What a workload needs of its assets is known there alone.
    """
    loaded = load_suite(name)
    for entry in at_scale(loaded, "lab" if "lab" in loaded.scales else None).workloads:
        workload = registry.load(entry.workload or entry.name)
        if not workload.assets:
            need = workload.needs(registry.complete(workload.name, entry.parameters), {})
            assert need.disk_bytes <= 0.95 * 2**30, entry.name
            assert max(need.memory_bytes, need.scratch_bytes) <= 2 * 2**30, entry.name


@pytest.mark.parametrize(
    ("name", "blocks", "sha256"),
    [
        ("smoke", 3, "d3546b6ddb31bb064f88baa52bd04f1025ce102e7a3861dc84fab230634b55be"),
        ("overnight", 10, "837b37eeb961e87ce670bc21661a4b30944e2e475b615e90f104d420420c1497"),
    ],
)
def test_a_seed_gives_the_order_that_it_gave_before(name: str, blocks: int, sha256: str) -> None:
    """Sums of the runs: who plans a suite again by its seed gets the same one."""
    described = target()
    stacks = described["configurations"]
    stacks.append({**stacks[-1], "name": "dmcrypt-aes256", "key_bits": 256})
    loaded = replace(load_suite(name), drift_check=DriftCheck(every=1000), blocks=blocks)
    runs = schema.write(compiled(loaded, described).runs)
    assert hashlib.sha256(json.dumps(runs, sort_keys=True).encode()).hexdigest() == sha256


def test_a_block_repeats_entries_on_their_configurations() -> None:
    frozen = compiled(full_suite())
    first = Counter((run.configuration, run.workload) for run in of_block(frozen, 0))
    assert first == {
        **{(stack, "idle"): 1 for stack in ("plain", "opal", "dmcrypt-aes128")},
        **{(stack, "file_io"): 2 for stack in ("plain", "opal", "dmcrypt-aes128")},
        **{(stack, "file_io-warm"): 1 for stack in ("plain", "dmcrypt-aes128")},
    }
    written = frozen.document()["workloads"]
    assert written[2]["workload"] == "file_io"
    assert "workload" not in written[1], "the same as its name"
    assert written[2]["parameters"]["cache"] == "warm"


def test_entries_not_in_the_overall_sum_are_marked() -> None:
    warm = {"name": "file_io-warm", "workload": "file_io", "overall": False}
    frozen = plan(workloads=[{"name": "file_io", "overall": True}, warm])
    assert [entry.get("overall") for entry in frozen["workloads"]] == [None, False]


def test_repetitions_have_separate_numbers_ids_and_seeds() -> None:
    frozen = compiled(full_suite())
    repeated = [run for run in of_block(frozen, 0) if run.workload == "file_io"]
    for run in repeated:
        assert run.run_id.endswith(f"-{run.configuration}-file_io.{run.repeat}")
    assert sorted(run.repeat or 0 for run in repeated) == [0, 0, 0, 1, 1, 1]
    for run in frozen.document()["runs"]:
        assert ("repeat" in run) == (run["workload"] == "file_io")
    parsed = plans.parse(frozen.document())
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
    assert parsed.entries["file_io-warm"].workload == "file_io"


def test_extra_blocks_follow_the_full_ones_and_the_drift_check_closes() -> None:
    frozen = compiled(full_suite(drift_check=True))
    assert frozen.blocks == 3
    assert frozen.document()["extra_blocks"] == {"first": 3, "count": 2}
    for block in (3, 4):
        runs = [run for run in of_block(frozen, block) if run.workload != "drift_check"]
        assert Counter((run.configuration, run.workload) for run in runs) == {
            ("plain", "idle"): 1,
            ("plain", "file_io-warm"): 1,
            ("opal", "idle"): 1,
        }
        assert len(list(groupby(run.configuration for run in runs))) == 2
    assert frozen.runs[-1].workload == "drift_check" and frozen.runs[-1].block == 4
    assert [run.index for run in frozen.runs] == list(range(len(frozen.runs)))
    assert "extra_blocks" not in plan()
    assert compiled(full_suite(extra={"blocks": 0})) == compiled(full_suite(extra=None))


def test_a_longer_suite_begins_like_a_shorter_one() -> None:
    shorter, longer = (compiled(full_suite(blocks=blocks)).runs for blocks in (2, 3))
    full = [run for run in shorter if run.block < 2]
    assert list(longer[: len(full)]) == full


def test_comparisons_list_the_configurations_that_run_both_sides() -> None:
    frozen = compiled(full_suite()).document()["analysis"]["comparisons"]
    assert frozen == [{**COMPARISON, "configurations": ["plain", "dmcrypt-aes128"]}]
    idle = {**COMPARISON, "second": {"workload": "idle"}, "configurations": ["opal"]}
    del idle["per"]
    (frozen,) = compiled(full_suite(comparisons=[idle])).document()["analysis"]["comparisons"]
    assert frozen["second"] == {"workload": "idle", "phase": "all"}
    assert frozen["per"] is None and frozen["configurations"] == ["opal"]
    assert "comparisons" not in plan()["analysis"]


def test_entries_without_a_chosen_configuration_are_left_out() -> None:
    without = compiled(full_suite(), configurations=["opal"])
    assert list(without.entries) == ["idle", "file_io"]
    assert not without.analysis.comparisons
    assert without.extra_blocks == plans.ExtraBlocks(first=3, count=2)
    assert {run.workload for run in of_block(without, 3)} == {"idle"}
    some = compiled(full_suite(), configurations=["dmcrypt-aes128"])
    assert some.analysis.comparisons[0].configurations == ("dmcrypt-aes128",)
    assert some.extra_blocks is None, "none of its configurations is left"
    with refuses("no-workload-runs"):
        compiled(
            full_suite(workloads=ENTRIES[2:], extra=None, comparisons=[]), configurations=["opal"]
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({"workloads": [*ENTRIES, entry]}, message)
            for entry, message in (
                ({"name": "warm", "workload": "fileio"}, unknown("file_io")),
                ({"name": "sql", "configurations": ["opel"]}, unknown("opal")),
                ({"name": "sql", "workload": "file_io"}, refuses("name-taken", workload="file_io")),
                ({"name": "all", "workload": "file_io"}, refuses("name-taken", workload="file_io")),
                ({"name": "rest", "workload": "drift_check"}, refuses("drift-check-entry")),
                ({"name": "drift_check"}, refuses("drift-check-entry")),
                ({"name": "idle"}, refuses("entry-twice", entry="idle")),
                (
                    {"name": "file_io-warm", "workload": "sql"},
                    refuses("entry-twice", entry="file_io-warm"),
                ),
            )
        ),
        ({"drift_check": {"second": 3}}, unknown("seconds")),
        ({"workloads": [{"name": "sql", "parameters": {"row": 1}}]}, unknown("rows")),
        ({"configurations": ["plian"]}, refuses("configuration-not-in-inventory")),
        ({"contrasts": [["plain", "opel"]]}, unknown("opal")),
        *(
            ({"extra": {"blocks": 1, **extra}}, message)
            for extra, message in (
                ({"workloads": ["idl"]}, unknown("idle")),
                ({"configurations": ["opel"]}, unknown("opal")),
                (
                    {"configurations": ["opal"], "workloads": ["file_io-warm"]},
                    refuses("extra-without-workload"),
                ),
            )
        ),
        *(
            ({"comparisons": [{**COMPARISON, **change}]}, message)
            for change, message in (
                ({"per": "byte"}, unknown("bytes")),
                ({"first": {"workload": "file_i"}}, unknown("file_io")),
                ({"first": COMPARISON["second"]}, refuses("sides-alike")),
                ({"configurations": ["opel"]}, unknown("opal")),
                (
                    {"configurations": ["opal", "plain"]},
                    refuses("side-without-workload", without="opal"),
                ),
            )
        ),
        ({"comparisons": [COMPARISON, COMPARISON]}, refuses("comparison-twice")),
    ],
)
def test_unknown_and_conflicting_names_are_refused(
    changes: dict[str, Any], message: Refusal
) -> None:
    with message:
        compiled(full_suite(**changes))


def test_a_scale_changes_parameters_and_the_summary() -> None:
    scale = {
        "blocks": 2,
        "drift_check": {"seconds": 1},
        "precondition": {"rounds": 5},
        "workloads": {"file_io": {"large_mib": 8}, "idle": {"seconds": 1}},
    }
    scaled_suite = suite(
        precondition=True,
        workloads=[{"name": "idle"}, {"name": "file_io", "parameters": {"small_files": 3}}],
        scales={"lab": scale},
    )
    frozen = compiled(at_scale(scaled_suite, "lab"))
    sizes = {entry.name: entry.parameters for entry in frozen.workloads}
    assert frozen.scale == "lab: for tests" and frozen.blocks == 2
    assert sizes["file_io"]["large_mib"] == 8 and sizes["file_io"]["small_files"] == 3
    assert sizes["idle"] == {"seconds": 1.0} and sizes["drift_check"] == {"seconds": 1}
    assert frozen.precondition and frozen.precondition.rounds == 5
    unscaled = compiled(at_scale(scaled_suite, None))
    assert unscaled.scale == "for tests" and unscaled.blocks == 3


def test_a_scale_changes_entries_extra_blocks_and_comparisons() -> None:
    lab = {
        "rapl_hz": 5,
        "extra": {"blocks": 1},
        "entries": {"file_io": {"repeat": 1}, "file_io-warm": {"configurations": ["plain"]}},
        "workloads": {"file_io-warm": {"large_mib": 8}},
        "comparisons": {"caching": {"question": "Here?", "first": {"workload": "idle"}}},
    }
    frozen = compiled(at_scale(full_suite(scales={"lab": lab}), "lab"))
    assert Counter(run.workload for run in of_block(frozen, 0)) == {
        "idle": 3,
        "file_io": 3,
        "file_io-warm": 1,
    }
    assert frozen.document()["rapl_hz"] == 5
    assert frozen.extra_blocks == plans.ExtraBlocks(first=3, count=1)
    sizes = {entry.name: entry.parameters for entry in frozen.workloads}
    assert sizes["file_io-warm"]["large_mib"] == 8 and sizes["file_io"]["large_mib"] == 64
    (compared,) = frozen.analysis.comparisons
    assert compared.question == "Here?" and compared.configurations == ("plain",)
    assert schema.write(compared.first) == schema.write(Side("idle"))


@pytest.mark.parametrize(
    ("scales", "scale", "message"),
    [
        ({"lab": {}}, "lap", unknown("lab")),
        (None, "lab", refuses("one-scale", scale="lab")),
        ({"lab": {"workloads": {"file_i": {}}}}, "lab", unknown("file_io")),
        ({"lab": {"entries": {"file_i": {"repeat": 1}}}}, "lab", unknown("file_io")),
        ({"lab": {"comparisons": {"cashing": {}}}}, "lab", unknown("caching")),
    ],
)
def test_a_scale_with_unknown_names_is_refused(
    scales: object, scale: str, message: Refusal
) -> None:
    with message:
        at_scale(full_suite(scales=scales), scale)
    with refuses("extra-missing"):
        at_scale(suite(scales={"lab": {"extra": {"blocks": 1}}}), "lab")
