"""Ours beside the other papers' figures, the rules by which they agree, and the reasons given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.published import reference
from analysis.published.beside import (
    Beside,
    agreement,
    beside,
    by_chance,
    configuration_here,
    judged,
    spoilt,
    word,
)
from analysis.published.here import plain_unit
from analysis.published.likes import PANDA_SIZES
from analysis.published.reference import citations, published
from analysis.report import published_section
from analysis.stats.comparison import Comparison
from analysis.stats.results import Results
from analysis.suite.records import Suite
from analysis.tests.known import known, replanned
from analysis.tests.pages import cells, text_of
from contract.parameters import ParameterValue
from validation.synthetic.papers import COST, SPEED

MB = 2**20


@pytest.fixture(scope="module")
def found(papers: Results) -> Results:
    return papers


@pytest.fixture(scope="module")
def rows(found: Results) -> dict[str, list[Beside]]:
    return {c.paper: beside(found.suite, found.energy, published(c.paper)) for c in citations()}


def one(rows: Sequence[Beside], **wanted: Any) -> Beside:
    """Return the only row whose published figure has these."""
    same = [r for r in rows if all(getattr(r.published, k) == v for k, v in wanted.items())]
    assert len(same) == 1, [(r.published.key, r.here.note) for r in same]
    return same[0]


def mean(row: Beside) -> float:
    return known(row.measured).mean


def compared(ratio: float, low: float | None, high: float | None) -> Comparison:
    if low is None or high is None:
        return Comparison(5, ratio, 0.02)
    half = math.log(high / low) / 2
    return Comparison(5, ratio, 0.02, half / float(stats.t.ppf(0.975, 4)), 4.0)


def test_every_paper_has_something_beside_it(rows: dict[str, list[Beside]]) -> None:
    assert all(rows.values())
    assert all(r.measured is not None and r.measured.low is not None for r in rows["panda"])


def test_a_file_of_twenty_is_a_twentieth_of_the_phase(
    found: Results, rows: dict[str, list[Beside]]
) -> None:
    read = one(rows["fujimoto"], configuration="plain", quantity="time", phase="read-small")
    phase = found.energy.filter(
        workload="file_io", configuration="plain", phase="read-small", component="system"
    )["duration_s"].mean()
    assert isinstance(phase, float)
    assert mean(read) == pytest.approx(phase / 20)
    assert read.entry == "file_io"  # not the warm one
    grep = one(rows["fujimoto"], configuration="plain", quantity="time", workload="kernel_grep")
    assert mean(grep) == pytest.approx(0.2, rel=0.05)  # one search, of two


def test_speeds_are_bytes_over_time_in_the_papers_unit(rows: dict[str, list[Beside]]) -> None:
    aes = one(rows["analiza"], entry="figure-1", subject="AES", operation="encrypt")
    assert aes.published.unit == "GB/s"
    assert mean(aes) == pytest.approx(SPEED["aes"] / 1024, rel=0.05)
    serpent = one(rows["analiza"], entry="figure-1", subject="Serpent", operation="encrypt")
    assert serpent.published.unit == "MB/s"
    assert serpent.against == "AES"  # whatever the unit
    assert serpent.published_ratio == pytest.approx(932 / 1024 / 5.3)
    assert known(serpent.measured_ratio).ratio == pytest.approx(0.15, rel=0.05)
    assert plain_unit("KB/ms") == (1024_000, "B/s")


def test_cascades_are_named_from_the_outside_in(rows: dict[str, list[Beside]]) -> None:
    both = one(rows["analiza"], entry="figure-1", subject="AES(Twofish)", operation="decrypt")
    assert mean(both) == pytest.approx(160.0, rel=0.05)


def test_steps_stand_against_plain_on_the_same_drive(rows: dict[str, list[Beside]]) -> None:
    step = one(
        rows["analiza"],
        entry="figure-6",
        subject="AES",
        operation="write",
        quantity="io_rate",
        block_bytes=4096,
    )
    assert step.configuration == "tcrypt-aes256"
    assert step.against == "none"
    assert known(step.measured_ratio).ratio == pytest.approx(1 / COST["tcrypt-aes256"], rel=0.05)
    factor, _ = plain_unit(step.published.unit)
    assert mean(step) * factor == pytest.approx(40 / 0.2 / COST["tcrypt-aes256"], rel=0.05)


def test_derivations_of_other_counts_are_in_proportion(rows: dict[str, list[Beside]]) -> None:
    exact = one(rows["analiza"], entry="figure-3", subject="HMAC-SHA-256")
    assert exact.stands_in == ()
    assert mean(exact) == pytest.approx(500_000 / 900_000 * 1000, rel=0.05)
    longer = one(rows["analiza"], entry="figure-4", subject="HMAC-SHA-256")
    assert longer.stands_in == (500_000,)
    assert mean(longer) == pytest.approx(10_014_000 / 900_000 * 1000, rel=0.05)


def test_truecrypt_and_dmcrypt_are_apart_and_bestcrypt_is_not_there(
    rows: dict[str, list[Beside]],
) -> None:
    figure = [r for r in rows["sassani"] if r.published.entry == "figure-1"]
    assert {r.published.software for r in figure} == {"TrueCrypt"}
    stacks = {(r.here.note, r.configuration) for r in figure}
    assert stacks == {
        ("TrueCrypt format", "tcrypt-aes256"),
        ("TrueCrypt format", "tcrypt-serpent256"),
        ("TrueCrypt format", "tcrypt-twofish256"),
        ("dm-crypt", "dmcrypt-aes256"),
    }
    serpent = one(figure, subject="Serpent-256")
    assert known(serpent.measured_ratio).ratio == pytest.approx(1.3 / 1.8, rel=0.05)


def test_a_cascade_is_not_taken_for_its_first_cipher(found: Results) -> None:
    aes = found.suite.stacks["tcrypt-aes256"]
    settings = {**aes.settings, "cipher": "aes-twofish-serpent"}
    cascade = replace(aes, name="all-three", settings=settings)
    suite = replanned(found.suite, configurations=(cascade, *found.suite.plan.configurations))
    assert configuration_here(suite, "truecrypt-aes256") == "tcrypt-aes256"


def test_average_times_of_one_paper_are_sums_over_its_files(rows: dict[str, list[Beside]]) -> None:
    """Of Panda; its throughputs are of all files together."""
    total = one(rows["panda"], entry="table-iii", subject="DES", quantity="average_time")
    assert mean(total) == pytest.approx(sum(PANDA_SIZES) / MB / SPEED["des"] * 1000, rel=0.05)
    rate = one(rows["panda"], entry="table-iii", subject="DES", quantity="throughput")
    assert mean(rate) == pytest.approx(SPEED["des"] * MB / 1024_000, rel=0.05)
    assert rate.stands_in == (2 * MB,)  # there is nothing above 2 MB


def test_rsa_decrypts_one_block_whatever_the_size(rows: dict[str, list[Beside]]) -> None:
    """What Panda's times of some 4 ms fit; all of the data takes in proportion to the size."""
    mine = [
        r
        for r in rows["panda"]
        if (r.published.entry, r.published.subject) == ("table-ii", "RSA")
        and r.published.size_bytes in (MB, 2 * MB)
    ]
    block = [mean(r) for r in mine if r.here.member == "RSA (OAEP of one block)"]
    whole = [mean(r) for r in mine if r.here.member == "RSA (OAEP of all data)"]
    assert block[0] == pytest.approx(block[1], rel=0.05)
    assert whole[0] == pytest.approx(block[0] * MB / 190, rel=0.05)


def test_ranks_are_held_against_each_other_by_order_alone(rows: dict[str, list[Beside]]) -> None:
    ranks = [r for r in rows["verma"] if r.published.quantity == "rank"]
    assert len(ranks) > 1
    assert all(judged(r) is None for r in ranks)
    assert agreement(ranks).pairs > 0


def test_average_times_of_another_are_means(rows: dict[str, list[Beside]]) -> None:
    """Of Verma et al."""
    average = one(rows["verma"], entry="table-iii", subject="3DES", quantity="average_time")
    sizes = {p.size_bytes for p in published("verma") if p.entry == "table-iii" and p.size_bytes}
    assert len(sizes) == 10
    expected = sum(sizes) / 10 / (SPEED["3des"] * MB)
    assert mean(average) == pytest.approx(expected, rel=0.05)


def test_throughputs_of_different_sizes_are_compared(rows: dict[str, list[Beside]]) -> None:
    """Table II of Verma et al. has 256, 128 and 64 MB."""
    des = one(rows["verma"], entry="table-ii", subject="DES", quantity="throughput")
    assert des.published.size_bytes == 128 * MB
    assert des.against == "Blowfish"
    assert known(des.measured_ratio).ratio == pytest.approx(60 / 110, rel=0.05)
    time = one(rows["verma"], entry="table-ii", subject="DES", quantity="time")
    assert time.against == "Blowfish"  # the time of 128 MB beside that of 256 MB, as in the paper
    assert known(time.measured_ratio).ratio == pytest.approx(110 / 60 / 2, rel=0.05)


def test_aes_without_its_instructions_stands_against_the_same_ciphers(
    rows: dict[str, list[Beside]],
) -> None:
    aes = [
        r
        for r in rows["verma"]
        if (r.published.place, r.published.subject) == ("Table III", "AES")
        and r.published.size_bytes == 20_527
    ]
    assert [r.entry for r in aes] == ["cipher_modes", "cipher_modes-no-aes"]  # none of the large
    assert [r.against for r in aes] == ["DES, ECB"] * 2
    ratios = [r.measured_ratio.ratio for r in aes if r.measured_ratio is not None]
    assert ratios == pytest.approx([60 / 2000, 60 / 90], rel=0.05)
    large = [r for r in rows["verma"] if r.published.place == "Table II"]
    assert {r.entry for r in large if r.published.subject == "AES-128"} == {
        "cipher_modes-large",
        "cipher_modes-no-aes",
    }
    pair = [r for r in rows["verma"] if r.group == aes[0].group]
    # Four ciphers are six pairs, but DES and Blowfish take the same 2 s; without its instructions
    # AES stands beside three of the others.
    assert agreement(pair).pairs == 5 + 3


def test_rsa_stands_there_twice(rows: dict[str, list[Beside]]) -> None:
    first = [
        r
        for r in rows["panda"]
        if (r.published.entry, r.published.subject, r.published.size_bytes)
        == ("table-i", "RSA", MB)
    ]
    assert [r.here.member for r in first] == ["RSA (wraps a key)", "RSA (OAEP of all data)"]
    assert mean(first[1]) > 1000 * mean(first[0])


def test_joules_stand_beside_every_time(rows: dict[str, list[Beside]]) -> None:
    des = one(rows["panda"], entry="table-i", subject="DES", size_bytes=MB)
    assert des.joules_per == "MB"
    assert known(des.joules).mean == pytest.approx(30.0 / SPEED["des"], rel=0.05)
    key = one(rows["analiza"], entry="figure-3", subject="HMAC-SHA-256")
    assert key.joules_per == "derivation"


def test_without_a_meter_there_are_no_joules(found: Results) -> None:
    energy = found.energy.filter(pl.col("component") == "package-0")
    there = beside(found.suite, energy, published("panda"))
    assert there
    assert all(r.joules is None and r.measured is not None for r in there)


@pytest.mark.parametrize(
    ("there", "here", "low", "high", "says"),
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
def test_the_rule(there: float, here: float, low: float | None, high: float, says: str) -> None:
    assert word(there, compared(here, low, high)) == says


def test_the_papers_own_interval_counts() -> None:
    near = compared(1.35, 1.33, 1.37)
    assert word(1.30, near) == word(1.30, near, half_log=0.1) == "agrees"
    assert word(1.30, near, half_log=0.2) == "same direction"
    assert word(1.30, near, half_log=0.3) == "inconclusive"  # the paper's own may be none
    assert word(0.80, compared(1.5, 1.4, 1.6), half_log=0.3) == "inconclusive"


def test_what_agrees_by_chance_is_counted() -> None:
    """Of ratios within 1.25 of 1 most would agree without any effect, of others none."""
    precise, rough = (1.0, 0.98, 1.02), (1.0, 0.7, 1.4)
    assert by_chance(1.05, compared(*precise)) == pytest.approx(1, abs=1e-6)
    assert by_chance(1.60, compared(*precise)) == pytest.approx(0, abs=1e-6)
    assert by_chance(1.05, compared(*rough)) == 0  # too rough to agree with anything
    generator = np.random.default_rng(1)
    sigma = math.log(1.1) / 1.959964
    drawn = [
        compared(math.exp(x), math.exp(x) / 1.1, math.exp(x) * 1.1)
        for x in generator.normal(0, sigma, 4000)
    ]
    share = np.mean([word(1.12, one) == "agrees" for one in drawn])
    assert by_chance(1.12, drawn[0]) == pytest.approx(share, abs=0.03)


def test_rates_are_turned_into_costs(rows: dict[str, list[Beside]]) -> None:
    serpent = one(rows["analiza"], entry="figure-1", subject="Serpent", operation="encrypt")
    both = known(serpent.cost_ratios)
    assert both[0] > 1
    assert both[1].ratio > 1
    assert known(both[1].low) < both[1].ratio < known(both[1].high)
    assert judged(serpent) == "agrees"  # 5.8 and 6.7


def test_a_spoilt_figure_counts_for_nothing_and_spoils_what_is_against_it(
    rows: dict[str, list[Beside]],
) -> None:
    assert not any(spoilt(p) for p in published("sassani") if p.quantity == "speed")  # the unit
    step = next(r for r in rows["analiza"] if spoilt(r.published) and r.cost_ratios)
    assert judged(step) is None
    base = next(r for r in rows["analiza"] if r.reference and spoilt(r.reference) and r.cost_ratios)
    assert judged(base) is None


def test_pairs_are_counted_within_their_group(rows: dict[str, list[Beside]]) -> None:
    table = [
        r
        for r in rows["verma"]
        if (r.published.entry, r.published.size_bytes, r.entry)
        == ("table-iii", 36_002, "cipher_modes")
    ]
    assert [r.published.value for r in table] == [4, 13, 6, 3]  # DES, 3DES, AES, Blowfish
    told = agreement(table)
    # Here AES is the fastest, then Blowfish, DES, 3DES: two pairs with AES stand otherwise.
    assert (told.pairs, told.same_order) == (6, 4)


def test_nothing_is_said_where_there_is_nothing(rows: dict[str, list[Beside]]) -> None:
    base = [r for r in rows["fujimoto"] if r.is_baseline]
    assert published_section.said(base) == [
        "Of this paper there is no ratio here to hold beside a published one."
    ]


def provenance(suite: Suite, **more: Any) -> Suite:
    return replace(suite, before={**suite.before, **more})


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
def test_what_is_unsafe_is_marked_by_its_word(text: str, names: set[str]) -> None:
    assert {one.name for one in reference.known() if one.named_in(text)} == names
    assert reference.marked(text) == (f"{text}{reference.MARK}" if names else text)


def test_unsafe_ciphers_are_marked_in_every_table(
    found: Results, rows: dict[str, list[Beside]]
) -> None:
    shown = cells(published_section.tables(found, rows["verma"]))
    unsafe = [cell for cell in shown if cell.startswith(("DES", "3DES", "Blowfish"))]
    assert unsafe
    assert all(reference.MARK in cell for cell in unsafe)
    told = text_of(published_section.published_section(found))
    for name in ("DES", "3DES", "Blowfish", "ECB"):
        assert f"{reference.MARK} {name} is unsafe today" in told
    assert all(one.why and one.source for one in reference.known())


def test_a_loss_is_of_the_sizes_that_the_text_means(rows: dict[str, list[Beside]]) -> None:
    lost = one(
        rows["analiza"],
        entry="loss-results",
        pattern="small blocks",
        device="flash Patriot Rage Elite",
    )
    cost = COST["tcrypt-aes256"]
    assert (lost.configuration, lost.against) == ("tcrypt-aes256", "plain")
    assert mean(lost) == pytest.approx((1 - 1 / cost) * 100, abs=3)
    assert lost.published_ratio == pytest.approx(0.8)  # of speed: 20 % are lost
    both = lost.cost_ratios
    assert both is not None
    assert both[0] == pytest.approx(1.25)
    assert both[1].ratio == pytest.approx(cost, rel=0.05)
    assert lost.plain_values is None  # a loss is in no order with others


def test_a_share_of_cpu_is_told_in_points_without_a_ratio(rows: dict[str, list[Beside]]) -> None:
    more = one(rows["analiza"], entry="cpu-use", device="SSD Crucial MX300")
    assert mean(more) == pytest.approx(0.0, abs=1.0)
    assert (more.measured_ratio, more.published_ratio, judged(more)) == (None, None, None)


def test_the_mean_of_both_ways_is_of_the_speeds(rows: dict[str, list[Beside]]) -> None:
    both = one(rows["analiza"], entry="figure-1", subject="Serpent", operation="both")
    assert mean(both) == pytest.approx(SPEED["serpent"], rel=0.05)


def test_what_a_text_says_of_ciphers_is_made_of_their_phases(rows: dict[str, list[Beside]]) -> None:
    three = one(rows["verma"], entry="3des-des")
    assert mean(three) == pytest.approx(SPEED["des"] / SPEED["3des"], rel=0.05)
    assert (three.published_ratio, three.against) == (3, "DES")
    first = one(rows["verma"], entry="ranking", subject="Blowfish")
    assert mean(first) == 2  # AES is faster here
    slower = one(rows["panda"], entry="asymmetric")
    assert mean(slower) == pytest.approx(SPEED["aes"] / SPEED["rsa"], rel=0.05)


def test_a_figure_goes_with_the_disk_of_its_medium(found: Results) -> None:
    stacks = tuple(
        replace(stack, disk=disk, name=f"{disk}-{stack.name}")
        for disk in ("hdd", "ssd")
        for stack in found.suite.plan.configurations
    )
    suite = replanned(found.suite, configurations=stacks)
    assert configuration_here(suite, "truecrypt-aes256", "ssd") == "ssd-tcrypt-aes256"
    assert configuration_here(suite, "plain", "hdd") == "hdd-plain"
    assert configuration_here(suite, "plain", "sshd") is None
    assert configuration_here(found.suite, "plain", "hdd") == "plain"  # whatever disk there is


def test_a_closed_program_is_known_by_its_name(found: Results) -> None:
    stacks = found.suite.plan.configurations
    settings: dict[str, ParameterValue] = {"cipher": "aes", "key_bits": 256}
    other = replace(stacks[0], kind="external", name="veracrypt-aes", settings=settings)
    suite = replanned(found.suite, configurations=(*stacks, other))
    assert configuration_here(suite, "bestcrypt-aes256") is None
    named = replace(other, name="hdd-bestcrypt-aes256")
    suite = replanned(found.suite, configurations=(*stacks, other, named))
    assert configuration_here(suite, "bestcrypt-aes256") == "hdd-bestcrypt-aes256"
