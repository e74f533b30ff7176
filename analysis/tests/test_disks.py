"""Several disks: their condition, ratios within each, and what differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.money import costs
from analysis.report import first_page, tables
from analysis.report.disks_section import disk_table
from analysis.report.texts import say
from analysis.report.view import Matrix, Table
from analysis.stats import disks as specimens
from analysis.stats.comparison import LEAST_EQUIVALENT
from analysis.stats.disks import conditions, file_notes, findings, limit_k, too_warm
from analysis.stats.results import Results
from analysis.stats.summary import block_values
from analysis.suite.records import Run, Suite
from analysis.tests.known import analysed, replanned
from analysis.tests.pages import pieces, text_of
from contract.command_results import AnswerLine
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
    assert (before.mean, before.low, before.high, after.mean) == (37.0, 37.0, 37.0, 40.0)
    assert of_opal.warmer_k == {"before": 1.0, "after": 1.0}
    assert by_configuration["plain"].warmer_k == {}
    assert list(findings(suite, list(by_configuration.values()))) == []


@pytest.mark.parametrize(
    ("more_c", "flags"), [(9.0, ["10.0 K warmer"]), (-7.5, ["6.5 K colder"]), (3.9, [])]
)
def test_a_disk_beyond_the_limit_of_heat_is_flagged(
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
        by_configuration["opal"].temperature_c["before"].mean
        < by_configuration["plain"].temperature_c["before"].mean
    )
    assert by_configuration["opal"].warmer_k["before"] == 0.0


def test_media_errors_during_runs_are_reported(suite: Suite) -> None:
    first = next(run.run_id for run in suite.runs if run.configuration == "opal")

    def counting(run: Run, when: str, state: State) -> State:
        return state | {"errors": 3 + (when == "after" and run.run_id == first)}

    counted = changed(suite, counting)
    (sentence,) = findings(counted, conditions(counted))
    assert "Opal drive counted 1 media errors" in sentence


def test_a_disk_that_disagrees_with_the_kernel_about_writes_is_reported(suite: Suite) -> None:
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


def test_a_changed_link_or_cache_is_reported_by_configuration(suite: Suite) -> None:
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


def test_facts_that_a_disk_does_not_report_are_not_zero(derived: Results, suite: Suite) -> None:
    silent = changed(suite, lambda _r, _w, d: dict.fromkeys(d))
    opal = conditions(silent)[1]
    assert (opal.temperature_c, opal.warmer_k) == ({}, {})
    assert (opal.settings, opal.media_errors) == ({}, 0)
    shown = disk_table(replace(derived, suite=silent))
    rows = [row for table in pieces(Table, shown) for row in table.rows]
    assert rows and not [row for row in rows if SED in row]
    assert "disk under Opal drive reports no temperature" in text_of(shown)


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


def test_the_page_has_the_disk_table_and_flags_heat(tmp_path: Path) -> None:
    options = Options(blocks=2, workloads=("idle",), disks_c={"plain": 36.0, "sed": 45.0})
    derived = analysed(tmp_path / "s", options)
    page = text_of(disk_table(derived))
    assert "flagged: +9.0; +9.0" in page
    assert any("9.0 K warmer before its runs" in doubt for doubt in derived.reservations)
    older = tuple(replace(run, disks=RunDisks()) for run in derived.suite.runs)
    untold = replace(derived, suite=replace(derived.suite, runs=older))
    assert "no record of the condition" in text_of(disk_table(untold))
    assert not [doubt for doubt in untold.reservations if "disk" in doubt]


DISKS = ("hdd", "sshd", "ssd")
PLAIN_S = {"hdd": 1.4, "sshd": 1.2, "ssd": 1.0}
COST = {"hdd": 1.05, "sshd": 1.05, "ssd": 1.4}


def media_results(folder: Path) -> Results:
    slower = {f"plain-on-{disk}": PLAIN_S[disk] for disk in DISKS}
    slower |= {f"dmcrypt-aes256-on-{disk}": PLAIN_S[disk] * COST[disk] for disk in DISKS}
    slower["opal-on-ssd"] = 1.0
    return analysed(
        folder,
        blocks=4,
        interval_ms=100,
        workloads=("kernel_tree",),
        configurations=tuple(slower),
        slower=slower,
        disks_c=dict.fromkeys(DISKS, 35.0),
    )


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return media_results(tmp_path_factory.mktemp("media") / "s")


def test_a_configuration_is_compared_with_its_own_disk(media: Results) -> None:
    bases = {name: media.suite.base_of(name) for name in media.suite.configurations}
    assert bases["dmcrypt-aes256-on-ssd"] == "plain-on-ssd"
    assert bases["plain-on-ssd"] == "plain-on-hdd" == bases["plain-on-hdd"]
    for disk in DISKS:
        row = media.summary.filter(configuration=f"dmcrypt-aes256-on-{disk}", component="system")
        assert row["ratio"][0] == pytest.approx(COST[disk], rel=0.02)


def test_contrasts_change_disk_or_encryption_but_not_both(media: Results) -> None:
    pairs = {frozenset((c.base, c.other)) for c in media.contrasts}
    for disk in DISKS:
        assert frozenset((f"plain-on-{disk}", f"dmcrypt-aes256-on-{disk}")) in pairs
    for disk, other in (("hdd", "sshd"), ("hdd", "ssd"), ("sshd", "ssd")):
        assert frozenset((f"plain-on-{disk}", f"plain-on-{other}")) in pairs
    assert frozenset(("plain-on-hdd", "dmcrypt-aes256-on-ssd")) not in pairs


def test_one_page_has_every_disk(media: Results) -> None:
    shown = next(block for block in tables.matrix(media) if isinstance(block, Matrix))
    assert [group.name for group in shown.groups] == [f"Disk {disk}" for disk in DISKS]
    assert [row[0] for row in shown.groups[2].rows][-1] == "Opal drive, on ssd"


SOFT, ON_SED, UNLOCKED = "dmcrypt-aes256", "dmcrypt-aes256-on-sed", "sed-unlocked"
# The self-encrypting disk is slower by a tenth, whatever is on it; Opal costs nothing.
SLOWER = {"plain": 1.0, "opal": 1.1, SOFT: 1.3, UNLOCKED: 1.1, ON_SED: 1.43}
MODEL = {"model": "A1", "firmware": "7", "serial": "S1"}


def specimens_of(
    folder: Path, *configurations: str, sed: dict[str, Any] | None = None, blocks: int = 3
) -> Results:
    disks = {"plain": MODEL, "sed": {**MODEL, "serial": "S2", **(sed or {})}}
    return analysed(
        folder,
        blocks=blocks,
        interval_ms=100,
        workloads=("kernel_tree",),
        configurations=configurations,
        slower=SLOWER,
        machine={"disks": disks},
    )


def answered(derived: Results) -> list[AnswerLine]:
    """Return the lines on cost and on payback."""
    lines = first_page.lines(derived, derived.suite.folder)
    return [line for line in lines if line.question in ("cost", "payback")]


def test_one_disk_gives_a_verdict_and_a_payback(tmp_path: Path) -> None:
    derived = specimens_of(tmp_path / "s", UNLOCKED, "opal", ON_SED, blocks=LEAST_EQUIVALENT)
    hardware, software, *_, money = answered(derived)
    assert (hardware.code, hardware.facts["configuration"]) == ("equivalent", "opal")
    assert (software.code, software.facts["configuration"]) == ("more", ON_SED)
    assert "disk" not in money.reason
    assert {p.against for p in costs.paybacks(derived.suite, derived.energy)} == {ON_SED}
    assert specimens.table(derived.suite) == []


@pytest.mark.parametrize(
    ("sed", "words"),
    [
        ({}, "two specimens of one model"),
        ({"firmware": "8"}, "they differ in firmware"),
        (
            {"model": "B2", "firmware": "8", "size_bytes": 1},
            "they differ in model, firmware and capacity",
        ),
    ],
)
def test_two_disks_give_no_verdict_on_encryption(
    tmp_path: Path, sed: dict[str, Any], words: str
) -> None:
    derived = specimens_of(tmp_path / "s", "plain", "opal", SOFT, sed=sed)
    software, hardware, *_, money = answered(derived)
    assert (hardware.code, hardware.facts["verdict"]) == ("two-disks", "differs")
    assert software.code == "more", "one disk with and without software"
    assert say("answer.payback.with-disks", described=words) in money.reason
    assert say("matrix.two-disks").strip() in text_of(tables.legend(derived))


def test_the_disks_difference_without_encryption_is_subtracted(tmp_path: Path) -> None:
    derived = specimens_of(tmp_path / "s", "plain", "opal", SOFT, UNLOCKED, blocks=LEAST_EQUIVALENT)
    hardware, *_, money = answered(derived)
    assert (hardware.code, hardware.facts["configuration"]) == ("equivalent", "opal")
    energy = derived.energy.filter(pl.col("phase") != "tail")
    soft, plain, opal, unlocked = (
        block_values(energy, "kernel_tree", name, "system")
        for name in (SOFT, "plain", "opal", UNLOCKED)
    )
    (payback,) = costs.paybacks(derived.suite, energy)
    saved = [soft[b] - plain[b] - (opal[b] - unlocked[b]) for b in soft]
    assert payback.saving_j.mean == pytest.approx(sum(saved) / len(saved))
    assert say("answer.payback.less-disks") in money.reason


def test_the_table_lists_differing_fields(tmp_path: Path) -> None:
    derived = specimens_of(tmp_path / "s", "plain", "opal", sed={"firmware": "8"})
    assert specimens.table(derived.suite) == [
        ["", "plain", "sed"],
        ["firmware", "7", "8"],
        ["serial number", "S1", "S2"],
    ]


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        ({}, []),
        ({"filesystem": "ext4", "layers": "disk"}, ["file-disk"]),
        (
            {"filesystem": "ext4", "layers": "LVM, dm-crypt, disk"},
            ["file-disk", "file-disk-encrypted"],
        ),
        (
            {"filesystem": "btrfs", "layers": "USB disk"},
            ["file-disk", "file-disk-copies", "file-disk-usb"],
        ),
    ],
)
def test_a_disk_that_is_a_file_is_noted(
    suite: Suite, facts: dict[str, str], codes: list[str]
) -> None:
    changed_suite = replace(suite, before={"disks": {"plain": facts}})
    assert [note.code for note in file_notes(changed_suite)] == codes
    assert [note.sentence for note in file_notes(changed_suite)] == list(
        findings(changed_suite, [])
    )[: len(codes)]
