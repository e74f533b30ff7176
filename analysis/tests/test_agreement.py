"""The papers' figures beside ours: what corresponds, agrees and is shown."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from scipy import stats

from analysis.published import reference
from analysis.published.compared_figures import (
    ComparedFigure,
    compare_figures,
    count_verdicts,
    find_configuration,
    is_spoilt,
    verdict_on,
    verdict_on_ratio,
)
from analysis.published.counterparts import plain_unit
from analysis.published.reference import Published, citations, published
from analysis.report import published_section
from analysis.report.view import Table
from analysis.stats.comparison import Comparison
from analysis.stats.results import Results
from analysis.suite.records import Suite
from analysis.tests.known import known, replanned
from analysis.tests.pages import cells, pieces, text_of
from contract.parameters import ParameterValue
from validation.synthetic.papers import COST, SPEED

MB = 2**20


Rows = dict[str, list[ComparedFigure]]


@pytest.fixture(scope="module")
def rows(papers: Results) -> Rows:
    return {
        c.paper: compare_figures(papers.suite, papers.energy, published(c.paper))
        for c in citations()
    }


def find_row(rows: Sequence[ComparedFigure], **fields: Any) -> ComparedFigure:
    """Return the only row whose published figure has these."""
    (same,) = find_rows(rows, **fields)
    return same


def find_rows(rows: Sequence[ComparedFigure], **fields: Any) -> list[ComparedFigure]:
    return [r for r in rows if all(getattr(r.published, k) == v for k, v in fields.items())]


def mean(row: ComparedFigure) -> float:
    return known(row.measured).mean


def compared(ratio: float, low: float | None, high: float | None) -> Comparison:
    if low is None or high is None:
        return Comparison(5, ratio, 0.02)
    half = math.log(high / low) / 2
    return Comparison(5, ratio, 0.02, half / float(stats.t.ppf(0.975, 4)), 4.0)


PANDA_BYTES = sum((MB, 2 * MB, 5 * MB, 10 * MB, 20 * MB))
TABLE_III = [p for p in published("verma") if p.entry == "table-iii"]
VERMA_BYTES = sum({p.size_bytes for p in TABLE_III if p.size_bytes}) / 10


@pytest.mark.parametrize(
    ("paper", "conditions_text", "expected"),
    [
        # A cascade is named from the outside in; the mean of both ways is of the speeds.
        ("analiza", "figure-1 subject=AES(Twofish) operation=decrypt", 160.0),
        ("analiza", "figure-1 subject=Serpent operation=both", SPEED["serpent"]),
        # Derivations of other counts are in proportion.
        ("analiza", "figure-3 subject=HMAC-SHA-256", 500_000 / 900_000 * 1000),
        ("analiza", "figure-4 subject=HMAC-SHA-256", 10_014_000 / 900_000 * 1000),
        # Panda's average times are sums over its files, its throughputs of all files together.
        (
            "panda",
            "table-iii subject=DES quantity=average_time",
            PANDA_BYTES / MB / SPEED["des"] * 1e3,
        ),
        ("panda", "table-iii subject=DES quantity=throughput", SPEED["des"] * MB / 1024_000),
        ("panda", "asymmetric", SPEED["aes"] / SPEED["rsa"]),
        # Those of Verma et al. are means over its ten files.
        (
            "verma",
            "table-iii subject=3DES quantity=average_time",
            VERMA_BYTES / (SPEED["3des"] * MB),
        ),
        ("verma", "3des-des", SPEED["des"] / SPEED["3des"]),
        ("verma", "ranking subject=Blowfish", 2),  # AES is faster here
    ],
)
def test_a_rule_gives_our_value_of_a_figure(
    rows: Rows, paper: str, conditions_text: str, expected: float
) -> None:
    entry, *conditions = conditions_text.split()
    row = find_row(rows[paper], entry=entry, **dict(c.split("=") for c in conditions))
    assert mean(row) == pytest.approx(expected, rel=0.05)


def test_replaced_sizes_and_units_of_joules_are_recorded(rows: Rows) -> None:
    exact, longer = (
        find_row(rows["analiza"], entry=f"figure-{n}", subject="HMAC-SHA-256") for n in (3, 4)
    )
    assert (exact.stands_in, longer.stands_in) == ((), (500_000,))
    rate = find_row(rows["panda"], entry="table-iii", subject="DES", quantity="throughput")
    assert rate.stands_in == (2 * MB,)  # there is nothing above 2 MB
    des = find_row(rows["panda"], entry="table-i", subject="DES", size_bytes=MB)
    assert (des.joules_per, exact.joules_per) == ("MB", "derivation")
    assert known(des.joules).mean == pytest.approx(30.0 / SPEED["des"], rel=0.05)
    points = find_row(rows["analiza"], entry="cpu-use", device="SSD Crucial MX300")
    assert mean(points) == pytest.approx(0.0, abs=1.0)
    assert (points.measured_ratio, points.published_ratio, verdict_on(points)) == (None, None, None)


def test_a_file_of_twenty_is_a_twentieth_of_the_phase(papers: Results, rows: Rows) -> None:
    read = find_row(rows["fujimoto"], configuration="plain", quantity="time", phase="read-small")
    phase = papers.energy.filter(
        workload="file_io", configuration="plain", phase="read-small", component="system"
    )["duration_s"].mean()
    assert isinstance(phase, float)
    assert mean(read) == pytest.approx(phase / 20)
    assert read.entry == "file_io"  # not the warm one
    grep = find_row(
        rows["fujimoto"], configuration="plain", quantity="time", workload="kernel_grep"
    )
    assert mean(grep) == pytest.approx(0.2, rel=0.05)  # one search, of two


def test_speeds_are_bytes_over_time_in_the_papers_unit(rows: Rows) -> None:
    aes = find_row(rows["analiza"], entry="figure-1", subject="AES", operation="encrypt")
    assert aes.published.unit == "GB/s"
    assert mean(aes) == pytest.approx(SPEED["aes"] / 1024, rel=0.05)
    serpent = find_row(rows["analiza"], entry="figure-1", subject="Serpent", operation="encrypt")
    assert serpent.published.unit == "MB/s"
    assert serpent.against == "AES"  # whatever the unit
    assert serpent.published_ratio == pytest.approx(932 / 1024 / 5.3)
    assert known(serpent.measured_ratio).ratio == pytest.approx(0.15, rel=0.05)
    assert plain_unit("KB/ms") == (1024_000, "B/s")


def test_steps_are_compared_with_plain_on_the_same_drive(rows: Rows) -> None:
    write = {"operation": "write", "quantity": "io_rate", "block_bytes": 4096}
    step = find_row(rows["analiza"], entry="figure-6", subject="AES", **write)
    assert step.configuration == "tcrypt-aes256"
    assert step.against == "none"
    assert known(step.measured_ratio).ratio == pytest.approx(1 / COST["tcrypt-aes256"], rel=0.05)
    factor, _ = plain_unit(step.published.unit)
    assert mean(step) * factor == pytest.approx(40 / 0.2 / COST["tcrypt-aes256"], rel=0.05)


def test_truecrypt_and_dmcrypt_are_separate_and_bestcrypt_is_missing(rows: Rows) -> None:
    figure = [r for r in rows["sassani"] if r.published.entry == "figure-1"]
    assert {r.published.software for r in figure} == {"TrueCrypt"}
    stacks = {(r.counterpart.note, r.configuration) for r in figure}
    assert stacks == {
        ("TrueCrypt format", "tcrypt-aes256"),
        ("TrueCrypt format", "tcrypt-serpent256"),
        ("TrueCrypt format", "tcrypt-twofish256"),
        ("dm-crypt", "dmcrypt-aes256"),
    }
    serpent = find_row(figure, subject="Serpent-256")
    assert known(serpent.measured_ratio).ratio == pytest.approx(1.3 / 1.8, rel=0.05)


def test_a_cascade_is_not_taken_for_its_first_cipher(papers: Results) -> None:
    aes = papers.suite.stacks["tcrypt-aes256"]
    settings = {**aes.settings, "cipher": "aes-twofish-serpent"}
    cascade = replace(aes, name="all-three", settings=settings)
    suite = replanned(papers.suite, configurations=(cascade, *papers.suite.plan.configurations))
    assert find_configuration(suite, "truecrypt-aes256") == "tcrypt-aes256"


def test_rsa_decrypts_one_block_whatever_the_size(rows: Rows) -> None:
    """What Panda's times of some 4 ms fit; all of the data takes in proportion to the size."""
    mine = [
        r
        for size_bytes in (MB, 2 * MB)
        for r in find_rows(rows["panda"], entry="table-ii", subject="RSA", size_bytes=size_bytes)
    ]
    block = [mean(r) for r in mine if r.counterpart.member == "RSA (OAEP of one block)"]
    single_block = [mean(r) for r in mine if r.counterpart.member == "RSA (OAEP of all data)"]
    assert block[0] == pytest.approx(block[1], rel=0.05)
    assert single_block[0] == pytest.approx(block[0] * MB / 190, rel=0.05)


def test_ranks_have_no_verdict(rows: Rows) -> None:
    ranks = [r for r in rows["verma"] if r.published.quantity == "rank"]
    assert len(ranks) > 1
    ranks = [replace(r, stands_in=()) for r in ranks]  # as if all ten sizes were here
    assert all(verdict_on(r) is None for r in ranks)


def test_throughputs_of_different_sizes_are_compared(rows: Rows) -> None:
    """Table II of Verma et al. has 256, 128 and 64 MB."""
    des = find_row(rows["verma"], entry="table-ii", subject="DES", quantity="throughput")
    assert des.published.size_bytes == 128 * MB
    assert des.against == "Blowfish"
    assert known(des.measured_ratio).ratio == pytest.approx(60 / 110, rel=0.05)
    time = find_row(rows["verma"], entry="table-ii", subject="DES", quantity="time")
    assert time.against == "Blowfish"  # the time of 128 MB beside that of 256 MB, as in the paper
    assert known(time.measured_ratio).ratio == pytest.approx(110 / 60 / 2, rel=0.05)


def test_aes_without_its_instructions_is_compared_with_the_same_ciphers(rows: Rows) -> None:
    aes = find_rows(rows["verma"], place="Table III", subject="AES", size_bytes=20_527)
    assert [r.entry for r in aes] == ["cipher_modes", "cipher_modes-no-aes"]  # none of the large
    assert [r.against for r in aes] == ["DES, ECB"] * 2
    ratios = [r.measured_ratio.ratio for r in aes if r.measured_ratio is not None]
    assert ratios == pytest.approx([60 / 2000, 60 / 90], rel=0.05)
    large = find_rows(rows["verma"], place="Table II", subject="AES-128")
    assert {r.entry for r in large} == {"cipher_modes-large", "cipher_modes-no-aes"}


def test_rsa_has_two_counterparts(rows: Rows) -> None:
    first = find_rows(rows["panda"], entry="table-i", subject="RSA", size_bytes=MB)
    assert [r.counterpart.member for r in first] == ["RSA (wraps a key)", "RSA (OAEP of all data)"]
    assert mean(first[1]) > 1000 * mean(first[0])


def test_without_a_meter_there_are_no_joules(papers: Results) -> None:
    energy = papers.energy.filter(component="package-0")
    figures = compare_figures(papers.suite, energy, published("panda"))
    assert figures
    assert all(r.joules is None and r.measured is not None for r in figures)


def test_a_disk_of_unknown_kind_stands_for_none_of_three(rows: Rows) -> None:
    of_media = [r for r in rows["sassani"] if r.counterpart.note == "TrueCrypt format"]
    assert len({r.published.device.split()[0] for r in of_media if r.published.device}) == 3
    assert all("on a disk of unknown kind" in r.differs for r in of_media if r.published.device)
    assert not any(count_verdicts(of_media).values())


def test_a_size_stands_in_only_where_the_papers_figures_scale(rows: Rows) -> None:
    """Panda's AES takes 68 to 80 ms a MB of text, its images 20 to 103."""
    by_type = {
        kind: find_row(
            rows["panda"], entry=entry, subject="AES", file_type=kind, size_bytes=20 * MB
        )
        for entry, kind in (("table-i", "text"), ("table-vii", "image"))
    }
    assert {row.stands_in for row in by_type.values()} == {(2 * MB,)}
    assert by_type["text"].comparable and verdict_on(by_type["image"]) is None
    assert not by_type["image"].comparable


def test_a_figure_of_another_size_and_with_fsync_is_not_comparable(papers: Results) -> None:
    parameters: dict[str, ParameterValue] = {"large_mib": 384, "small_mib": 10, "fsync": True}
    entries = [
        replace(entry, parameters=parameters) if entry.name == "file_io" else entry
        for entry in papers.suite.plan.workloads
    ]
    suite = replanned(papers.suite, workloads=tuple(entries))
    rows = compare_figures(suite, papers.energy, published("fujimoto"))
    written = find_row(rows, configuration="opal", quantity="time", phase="write-large")
    assert written.differs == ("a file of 384 MiB", "with fsync")
    assert verdict_on(written) is None
    read = find_row(rows, configuration="opal", quantity="time", phase="read-small")
    assert read.differs == () and verdict_on(read) is not None
    assert sum(not row.comparable for row in rows) == 4
    shown = cells(published_section.tables(papers, [written]))
    assert "not comparable: here a file of 384 MiB, with fsync" in shown


@pytest.mark.parametrize(
    ("published_value", "ours", "low", "high", "says"),
    [
        (1.30, 1.25, 1.24, 1.26, "agrees"),  # certainly within a factor of 1.25
        (1.30, 1.25, 0.90, 1.70, "inconclusive"),  # near it, as 1 is
        (1.30, 1.05, 1.01, 1.09, "same direction"),  # its interval reaches beyond the factor
        (3.00, 1.90, 1.10, 3.20, "same direction"),  # in the interval, which holds much else
        (3.00, 1.50, 1.40, 1.60, "same direction"),
        (0.30, 0.60, 0.50, 0.70, "same direction"),
        (1.50, 0.50, 0.40, 0.60, "opposite"),
        (1.50, 0.99, 0.90, 1.10, "inconclusive"),
        (1.50, 0.50, None, None, "inconclusive"),
    ],
)
def test_a_ratio_gets_its_verdict(
    published_value: float, ours: float, low: float | None, high: float, says: str
) -> None:
    assert verdict_on_ratio(published_value, compared(ours, low, high)) == says


def test_the_papers_own_interval_counts() -> None:
    near = compared(1.35, 1.33, 1.37)
    assert verdict_on_ratio(1.30, near) == verdict_on_ratio(1.30, near, half_log=0.1) == "agrees"
    assert verdict_on_ratio(1.30, near, half_log=0.2) == "same direction"
    assert (
        verdict_on_ratio(1.30, near, half_log=0.3) == "inconclusive"
    )  # the paper's own may be none
    assert verdict_on_ratio(0.80, compared(1.5, 1.4, 1.6), half_log=0.3) == "inconclusive"


def test_rates_are_turned_into_costs(rows: Rows) -> None:
    serpent = find_row(rows["analiza"], entry="figure-1", subject="Serpent", operation="encrypt")
    ratios = known(serpent.cost_ratios)
    assert ratios[0] > 1
    assert ratios[1].ratio > 1
    assert known(ratios[1].low) < ratios[1].ratio < known(ratios[1].high)
    assert verdict_on(serpent) == "agrees"  # 5.8 and 6.7


def test_a_spoilt_figure_and_ratios_to_it_have_no_verdict(rows: Rows) -> None:
    assert not any(is_spoilt(p) for p in published("sassani") if p.quantity == "speed")  # the unit
    step = next(r for r in rows["analiza"] if is_spoilt(r.published) and r.cost_ratios)
    assert verdict_on(step) is None
    base = next(
        r for r in rows["analiza"] if r.reference and is_spoilt(r.reference) and r.cost_ratios
    )
    assert verdict_on(base) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("DES, CBC", {"DES"}),
        ("3DES", {"3DES"}),
        ("des-cbc.encrypt.text.1048576B", {"DES"}),
        ("blowfish-448-ecb", {"Blowfish", "ECB"}),
        ("HMAC-RIPEMD-160", {"RIPEMD-160"}),
        ("AES-256, CTR", set()),
        ("described", set()),
    ],
)
def test_unsafe_algorithms_are_marked_by_whole_words(text: str, names: set[str]) -> None:
    assert {
        unsafe.name for unsafe in reference.unsafe_algorithms() if unsafe.named_in(text)
    } == names
    assert reference.mark_unsafe(text) == (f"{text}{reference.MARK}" if names else text)


def test_unsafe_ciphers_are_marked_in_every_table(papers: Results, rows: Rows) -> None:
    few = rows["verma"][:: len(rows["verma"]) // published_section.FEW + 1]
    shown = cells(published_section.tables(papers, few))
    unsafe = [cell for cell in shown if cell.startswith(("DES", "3DES", "Blowfish"))]
    assert unsafe
    assert all(reference.MARK in cell for cell in unsafe)
    text = text_of(published_section.published_section(papers))
    for name in ("DES", "3DES", "Blowfish", "ECB"):
        assert f"{reference.MARK} {name} is unsafe today" in text
    assert all(unsafe.why and unsafe.source for unsafe in reference.unsafe_algorithms())


def test_a_loss_is_of_the_sizes_that_the_text_means(rows: Rows) -> None:
    flash = {"pattern": "small blocks", "device": "flash Patriot Rage Elite"}
    lost = find_row(rows["analiza"], entry="loss-results", **flash)
    cost = COST["tcrypt-aes256"]
    assert (lost.configuration, lost.against) == ("tcrypt-aes256", "plain")
    assert mean(lost) == pytest.approx((1 - 1 / cost) * 100, abs=3)
    assert lost.published_ratio == pytest.approx(0.8)  # of speed: 20 % are lost
    ratios = lost.cost_ratios
    assert ratios is not None
    assert ratios[0] == pytest.approx(1.25)
    assert ratios[1].ratio == pytest.approx(cost, rel=0.05)


def test_a_figure_goes_with_the_disk_of_its_medium(papers: Results) -> None:
    stacks = tuple(
        replace(stack, disk=disk, name=f"{disk}-{stack.name}")
        for disk in ("hdd", "ssd")
        for stack in papers.suite.plan.configurations
    )
    suite = replanned(papers.suite, configurations=stacks)
    assert find_configuration(suite, "truecrypt-aes256", "ssd") == "ssd-tcrypt-aes256"
    assert find_configuration(suite, "plain", "hdd") == "hdd-plain"
    assert find_configuration(suite, "plain", "sshd") is None
    assert find_configuration(papers.suite, "plain", "hdd") == "plain"  # whatever disk there is


def test_a_closed_program_is_known_by_its_name(papers: Results) -> None:
    stacks = papers.suite.plan.configurations
    settings: dict[str, ParameterValue] = {"cipher": "aes", "key_bits": 256}
    other = replace(stacks[0], kind="external", name="veracrypt-aes", settings=settings)
    suite = replanned(papers.suite, configurations=(*stacks, other))
    assert find_configuration(suite, "bestcrypt-aes256") is None
    named = replace(other, name="hdd-bestcrypt-aes256")
    suite = replanned(papers.suite, configurations=(*stacks, other, named))
    assert find_configuration(suite, "bestcrypt-aes256") == "hdd-bestcrypt-aes256"


OWN_NAMES = {
    "plain": "bare",
    "opal": "the-drive",
    "dmcrypt-aes128": "luks-small",
    "dmcrypt-aes256": "luks-large",
}


def renamed(derived: Results) -> Results:
    """Return the same suite with names of its own for its configurations."""
    stacks = derived.suite.plan.configurations
    renamed = tuple(replace(stack, name=OWN_NAMES[stack.name]) for stack in stacks)
    suite = replanned(derived.suite, configurations=renamed)
    energy = derived.energy.with_columns(pl.col("configuration").replace(OWN_NAMES))
    return replace(derived, suite=suite, all_energy=energy)


def without(suite: Suite, kind: str) -> Suite:
    others = tuple(stack for stack in suite.plan.configurations if stack.kind != kind)
    return replanned(suite, configurations=others)


def test_published_figures_are_compared_with_measured(derived: Results) -> None:
    rows = compare_figures(derived.suite, derived.energy, published())
    entries = [row.published.entry for row in rows]
    assert list(dict.fromkeys(entries)) == ["read-10mb", "write-1gb", "untar", "grep"]
    assert len(rows) == 20
    by = {(r.published.entry, r.published.quantity, r.configuration): r for r in rows}
    base, drive = by["untar", "energy", "plain"], by["untar", "energy", "opal"]
    assert base.is_baseline
    assert base.published_ratio is None
    assert base.measured_ratio is None
    assert drive.published_ratio == pytest.approx(2455.955 / 2414.687)
    untar = derived.energy.filter(phase="untar", component="system", configuration="opal")
    assert known(drive.measured).mean == pytest.approx(untar["energy_j"].mean())
    assert known(drive.measured_ratio).ratio == pytest.approx(1.012, abs=0.02)
    assert drive.origin == "modelled"
    assert by["grep", "time", "opal"].origin == "measured"


def test_durations_of_synthetic_runs_are_synthetic(derived: Results) -> None:
    energy = derived.energy.with_columns(origin=pl.lit("synthetic"))
    rows = compare_figures(derived.suite, energy, published())
    assert {row.origin for row in rows} == {"synthetic"}


def test_configurations_are_matched_by_kind_and_cipher(derived: Results) -> None:
    other = renamed(derived)
    names = {name: find_configuration(other.suite, name) for name in OWN_NAMES}
    assert names == OWN_NAMES
    same = compare_figures(derived.suite, derived.energy, published())
    again = compare_figures(other.suite, other.energy, published())
    assert [r.measured_ratio for r in again] == [r.measured_ratio for r in same]
    assert [r.published_ratio for r in again] == [r.published_ratio for r in same]
    assert find_configuration(derived.suite, "") is None
    assert find_configuration(without(derived.suite, "opal"), "opal") is None


def test_a_configuration_of_the_same_name_goes_first(derived: Results) -> None:
    twin = replace(derived.suite.stacks["dmcrypt-aes128"], name="first")
    suite = replanned(derived.suite, configurations=(twin, *derived.suite.plan.configurations))
    assert find_configuration(suite, "dmcrypt-aes128") == "dmcrypt-aes128"


def test_a_drives_own_cipher_is_ignored(derived: Results) -> None:
    stacks = tuple(
        replace(stack, settings={**stack.settings, "key_bits": 256})
        if stack.kind == "opal"
        else stack
        for stack in derived.suite.plan.configurations
    )
    suite = replanned(derived.suite, configurations=stacks)
    assert find_configuration(suite, "opal") == "opal"


def test_without_a_baseline_there_is_no_ratio(derived: Results) -> None:
    suite = without(derived.suite, "plain")
    rows = compare_figures(suite, derived.energy, published())
    assert len(rows) == 15
    assert all(row.measured is not None and row.measured_ratio is None for row in rows)


def test_any_paper_is_compared_once_it_names_a_workload(derived: Results) -> None:
    """Units are turned into the paper's: its times are in milliseconds."""
    first = published("panda")[10:20]
    figures = [
        replace(p, workload="sql", phase="query", configuration="plain")
        for p in first
        if p.unit == "ms"
    ]
    rows = compare_figures(derived.suite, derived.energy, figures)
    assert len(rows) == len(figures) > 0
    seconds = derived.energy.filter(phase="query", configuration="plain")["duration_s"].mean()
    assert isinstance(seconds, float)
    assert known(rows[0].measured).mean == pytest.approx(seconds * 1000)
    assert not compare_figures(derived.suite, derived.energy, published("panda"))


def test_an_unmeasured_paper_is_named_without_a_table(derived: Results) -> None:
    """Fujimoto's is touched by this suite, the four others by none of its workloads."""
    page = text_of(published_section.published_section(derived))
    untouched = [c for c in citations() if c.paper != "fujimoto"]
    assert all(c.short in page for c in citations())
    assert not any(c.title in page for c in untouched)
    assert not re.search(r"\b(None|nan|NaN)\b", page)
    idle = derived.energy.filter(workload="idle")
    none = published_section.published_section(replace(derived, all_energy=idle))
    assert not pieces(Table, none) and pieces(Table, published_section.published_section(derived))


NAMES = [citation.paper for citation in citations()]


def test_papers_are_cited_and_unknown_ones_refused() -> None:
    assert NAMES[0] == "fujimoto"
    assert len(NAMES) == len(set(NAMES)) == 5
    assert all(citation.title in citation.text and citation.copy for citation in citations())
    assert len(published()) == sum(len(published(name)) for name in NAMES)
    with pytest.raises(KeyError, match="there are fujimoto"):
        published("nobody")


def test_numbers_are_kept_digit_by_digit() -> None:
    figure: Published = next(p for p in published("fujimoto") if p.entry == "grep")
    assert (figure.value, figure.printed, figure.half_width) == (5.175, "5.175", 0.09)
    assert figure.printed_half == "0.090"
    assert any(p.printed == "58.70" and p.value == 58.7 for p in published("sassani"))
