"""The disk's own condition by configuration, from made-up run records, and on the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.report.disks_section import SILENT, disk_table
from analysis.report.view import Table
from analysis.stats.disks import conditions, findings, limit_k, too_warm
from analysis.stats.results import Results
from analysis.suite.records import Run, Suite
from analysis.tests.known import analysed, replanned
from analysis.tests.pages import pieces, text_of
from contract.documents import RunDisks
from validation.synthetic.suite import Options

PLAIN, SED = "SYNTHETIC-PLAIN", "SYNTHETIC-SED"
State = dict[str, Any]
Change = Callable[[Run, str, State], State]


@pytest.fixture
def suite(derived: Results) -> Suite:
    return derived.suite


def changed(suite: Suite, change: Change, on: str = SED) -> Suite:
    """Return the suite with what one disk told around each run changed."""

    def with_change(run: Run) -> Run:
        before, after = (
            {**disks, on: change(run, when, dict(disks[on]))}
            for when, disks in (("before", run.disks.before), ("after", run.disks.after))
        )
        return replace(run, disks=replace(run.disks, before=before, after=after))

    return replace(suite, runs=tuple(map(with_change, suite.runs)))


def test_temperatures_are_those_of_the_configurations_own_disk(suite: Suite) -> None:
    by_configuration = {c.configuration: c for c in conditions(suite)}
    assert list(by_configuration) == suite.configurations
    assert [c.disk for c in by_configuration.values()] == [PLAIN, SED, PLAIN, PLAIN]
    of_opal = by_configuration["opal"]
    before, after = (of_opal.temperature_c[when] for when in ("before", "after"))
    assert (before.mid, before.low, before.high, after.mid) == (37.0, 37.0, 37.0, 40.0)
    assert of_opal.warmer_k == {"before": 1.0, "after": 1.0}
    assert by_configuration["plain"].warmer_k == {}
    assert list(findings(suite, list(by_configuration.values()))) == []


@pytest.mark.parametrize(
    ("more_c", "flags"), [(9.0, ["10.0 K warmer"]), (-7.5, ["6.5 K colder"]), (3.9, [])]
)
def test_a_disk_that_ran_warmer_is_flagged_beyond_the_suites_limit(
    suite: Suite, more_c: float, flags: list[str]
) -> None:
    def heat(_run: Run, _when: str, state: State) -> State:
        return state | {"temperature_c": state["temperature_c"] + more_c}

    warm = changed(suite, heat)
    warned = conditions(warm)
    assert limit_k(warm) == 5.0
    assert [bool(too_warm(c, 5.0)) for c in warned] == [False, bool(flags), False, False]
    for sentence, words in zip(findings(warm, warned), flags, strict=True):
        assert words in sentence
        assert "limit 5 K" in sentence
    assert too_warm(warned[1], None) is None  # older suites state no limit


def test_the_baseline_is_compared_within_blocks_and_workloads(suite: Suite) -> None:
    """One lacks the runs of a workload with a hot disk, the other a block: no difference."""

    def heat(run: Run, _when: str, state: State) -> State:
        return state | {"temperature_c": 60.0 if run.workload == "sql" else 40.0}

    hot = changed(changed(suite, heat), heat, PLAIN)
    lost = {("opal", "sql", b) for b in range(3)} | {("plain", w, 0) for w in suite.workloads}
    runs = (r for r in hot.runs if (r.configuration, r.workload, r.block) not in lost)
    by_configuration = {c.configuration: c for c in conditions(replace(hot, runs=tuple(runs)))}
    assert (
        by_configuration["opal"].temperature_c["before"].mid
        < by_configuration["plain"].temperature_c["before"].mid
    )
    assert by_configuration["opal"].warmer_k["before"] == 0.0


def test_counters_are_those_of_the_runs_alone(suite: Suite) -> None:
    def counting(run: Run, when: str, state: State) -> State:
        at = 10 * suite.runs.index(run) + (when == "after")
        return state | {
            "throttled": at,
            "written_bytes": at * 1000,
            "spare_percent": 100 - at // 400,
        }

    condition = {c.configuration: c for c in conditions(changed(suite, counting))}
    runs = sum(run.configuration == "opal" for run in suite.runs)
    assert condition["opal"].counted == {
        "throttled": runs,
        "written_bytes": 1000 * runs,
        "errors": 0,
    }
    assert condition["opal"].life["spare_percent"] == (100.0, 99.0)


def test_a_disk_that_counts_other_writes_than_the_kernel_is_named(suite: Suite) -> None:
    for kernel_bytes, named in ((10**9, False), (0.85e9, False), (0.5e9, True), (None, False)):

        def counting(
            run: Run, when: str, state: State, kernel_bytes: float | None = kernel_bytes
        ) -> State:
            if run.configuration != "opal":
                return state | {"kernel_written_bytes": None}
            ends = (10**9, kernel_bytes) if when == "after" else (0, kernel_bytes and 0)
            return state | dict(zip(("written_bytes", "kernel_written_bytes"), ends, strict=True))

        read = changed(suite, counting)
        sentences = [s for s in findings(read, conditions(read)) if "the kernel" in s]
        assert [f"runs on {read.label('opal')} the disk counted" in s for s in sentences] == (
            [True] if named else []
        )


def test_a_link_or_a_cache_that_changed_is_said_with_where(suite: Suite) -> None:
    last = max(run.block for run in suite.runs)
    slow = changed(
        suite, lambda run, _w, d: d | {"link": "2.5 GT/s" if run.block == last else d["link"]}
    )
    slow = changed(slow, lambda _r, _w, d: d | {"write_cache": "write through"})
    link, cache = findings(slow, conditions(slow))
    assert "link or queue was not the same" in link
    assert "Opal drive: 8.0 GT/s PCIe, x4, then 2.5 GT/s" in link
    assert "write cache was not the same" in cache
    assert "plain: write back; Opal drive: write through" in cache


def test_what_a_disk_keeps_to_itself_is_said_and_no_nought(derived: Results, suite: Suite) -> None:
    silent = changed(suite, lambda _r, _w, d: dict.fromkeys(d))
    opal = conditions(silent)[1]
    assert (opal.temperature_c, opal.warmer_k, opal.counted) == ({}, {}, {})
    assert (opal.settings, opal.life) == ({}, {})
    shown = disk_table(replace(derived, suite=silent))
    (row,) = (row[1:] for table in pieces(Table, shown) for row in table.rows if SED in row)
    assert row == [SED, *[SILENT] * 10]
    assert "No temperature is reported by the disk under Opal drive" in text_of(shown)


def test_the_disk_is_found_by_its_serial_number_or_as_the_only_one(suite: Suite) -> None:
    run = suite.runs[0]
    before, after = (
        {f"t10.ATA     A1  {name}": facts for name, facts in disks.items()}
        for disks in (run.disks.before, run.disks.after)
    )
    wwid = RunDisks(before, after)
    of_one = replace(suite, runs=(replace(run, disks=wwid),))
    assert [c.disk.endswith((PLAIN, SED)) for c in conditions(of_one)] == [True]
    unnamed = replanned(of_one, disks={})
    assert conditions(unnamed) == []  # two disks, and nothing tells which of them it was
    alone = RunDisks({"X": {"temperature_c": 30}}, {"X": {"temperature_c": 30}})
    runs = (replace(run, disks=alone),)
    assert [c.disk for c in conditions(replace(unnamed, runs=runs))] == ["X"]


def test_the_page_shows_the_table_and_flags_heat_beside_the_answer(tmp_path: Path) -> None:
    options = Options(blocks=2, workloads=("idle",), disks_c={"plain": 36.0, "sed": 45.0})
    derived = analysed(tmp_path / "s", options)
    page = text_of(disk_table(derived))
    assert "flagged: +9.0; +9.0" in page
    assert any("9.0 K warmer before its runs" in doubt for doubt in derived.reservations)
    older = tuple(replace(run, disks=RunDisks()) for run in derived.suite.runs)
    untold = replace(derived, suite=replace(derived.suite, runs=older))
    assert "do not record the condition" in text_of(disk_table(untold))
    assert not [doubt for doubt in untold.reservations if "disk" in doubt]
