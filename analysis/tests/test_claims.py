"""The papers' sentences as predicates: each predicate, the data, and what the examples show."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.energy.energy import WORK
from analysis.published.claims import (
    COMPONENTS,
    QUANTITIES,
    ClaimedRatio,
    DecidedClaim,
    DecidedRatio,
    claims,
    decide_claims,
    published_ratio,
    read_claim,
)
from analysis.published.conditions import MEDIA
from analysis.published.counterparts import counterparts
from analysis.published.reference import FOLDER, citations, configurations, published
from analysis.published.tables import claim_table, csv_tables, figure_table
from analysis.report.published_section import published_section
from analysis.report.view import Table
from analysis.stats.comparison import Comparison
from analysis.stats.results import Results, results
from analysis.suite import bundle
from analysis.tests.known import known, replanned
from analysis.tests.pages import Shared, pieces
from contract.places import ROOT
from validation.synthetic.paper import write_paper_suite
from workloads import registry

EXAMPLES = ROOT / "data" / "examples"


@pytest.fixture(scope="module")
def paper(shared: Shared) -> Results:
    """Return the suite that is drawn from the first paper's figures, of 20 blocks."""
    return results(shared("paper", write_paper_suite)[0])


def decided(derived: Results) -> list[DecidedClaim]:
    return decide_claims(derived.suite, derived.energy, derived.family.events)


def claimed(predicate: str, **fields: Any) -> ClaimedRatio:
    row = {"workload": "sql", "phases": "query", "predicate": predicate, "threshold": "-", **fields}
    return read_claim("fujimoto", "Section IV.C", "A sentence.", **row).ratios[0]


def comparison(ratio: float, n: int = 8, error: float | None = 0.005, **fields: Any) -> Comparison:
    df = None if error is None else n - 1.0
    return Comparison(n, ratio, 0.02, error, df, **fields)


def verdict_of(predicate: str, ratio: float, **more: Any) -> str:
    c = comparison(ratio, **more)
    return claimed(predicate).finding(c, c.estimate)


@pytest.mark.parametrize(
    ("predicate", "supported", "contradicted", "undecided"),
    [
        ("less", 0.95, 1.05, 0.995),
        ("more", 1.05, 0.95, 1.005),
        ("more 100", 2.1, 1.9, 2.01),
        ("same within 5", 1.0, 1.08, 1.045),
        ("same within 5", 0.98, 0.92, 0.955),
        ("at most 5", 1.01, 1.08, 1.045),
        ("at most 5", 0.5, 1.2, 1.05),
    ],
)
def test_a_predicate_is_decided_by_the_whole_interval(
    predicate: str, supported: float, contradicted: float, undecided: float
) -> None:
    assert verdict_of(predicate, supported) == "supported"
    assert verdict_of(predicate, contradicted) == "contradicted"
    assert verdict_of(predicate, undecided) == "open"
    assert verdict_of(predicate, supported, n=1, error=None) == "open"
    assert verdict_of(predicate, supported, error=0.5) == "open"


@pytest.mark.parametrize(
    ("predicate", "ratio", "fields", "verdict"),
    [
        ("same within 5", 1.0, {"n": 5}, "open"),
        ("at most 5", 1.0, {"n": 5}, "open"),
        ("same within 5", 1.3, {"n": 5}, "contradicted"),
        ("less", 0.9, {"n": 5}, "supported"),
    ],
)
def test_small_differences_need_as_much_as_equivalence(
    predicate: str, ratio: float, fields: dict[str, Any], verdict: str
) -> None:
    assert verdict_of(predicate, ratio, **fields) == verdict


def decided_claim(
    *findings: Any,
    ratios: int = 2,
    theirs: str = "",
    differs: tuple[str, ...] = (),
    origin: str = "measured",
    share: float = 1.0,
) -> DecidedClaim:
    sentence: dict[str, Any] = {"workload": "sql", "phases": "query", "predicate": "less"}
    sentence |= {"configuration": [f"c{number}" for number in range(ratios)], "theirs": theirs}
    claim = read_claim("fujimoto", "-", "-", share=share, **sentence)
    ratio, c = claim.ratios[0], comparison(0.9)
    parts = [
        DecidedRatio(ratio, "opal", "plain", c, c.estimate, finding, differs, origin)
        for finding in findings
    ]
    return DecidedClaim(claim, tuple(parts))


def test_a_claim_needs_all_of_its_ratios() -> None:
    assert decided_claim("supported", "supported").verdict == "supported"
    assert decided_claim("supported", "open").verdict == "open"
    assert decided_claim("supported", "open", "contradicted", ratios=3).verdict == "contradicted"
    assert decided_claim("supported").verdict == "open"  # the suite has only one of two
    assert decided_claim("contradicted").verdict == "contradicted"


def test_a_claim_of_most_needs_more_than_half_of_its_ratios() -> None:
    findings = ["supported"] * 3 + ["contradicted"] * 2
    assert decided_claim(*findings, ratios=5, share=0.51).verdict == "supported"
    assert decided_claim(*findings[1:], ratios=5, share=0.51).verdict == "open"
    assert decided_claim(*findings[1:], "contradicted", ratios=5, share=0.51).verdict == (
        "contradicted"
    )


def test_other_conditions_neither_support_nor_contradict() -> None:
    for finding in ("supported", "contradicted"):
        tested = decided_claim(finding, finding, differs=("with fsync",))
        assert tested.verdict == "not comparable"
        assert {ratio.verdict for ratio in tested.ratios} == {"not comparable"}


@pytest.mark.parametrize("origin", ["modelled", "synthetic"])
def test_a_model_agrees_or_disagrees(origin: str) -> None:
    def of_model(finding: str) -> str:
        return decided_claim(finding, finding, origin=origin).verdict

    assert of_model("supported") == "agrees with the model"
    assert of_model("contradicted") == "disagrees with the model"
    assert of_model("open") == "open"


def test_what_the_papers_own_figures_violate_is_named_as_theirs() -> None:
    tested = decided_claim("contradicted", "supported", theirs="3/2")
    assert tested.verdict == "contradicted by the paper's own figures"
    assert decided_claim("contradicted", "supported", theirs="2/3").verdict == "contradicted"


@pytest.mark.parametrize("predicate", ["fewer", "same within", "at most", "at most x"])
def test_an_unknown_predicate_is_refused(predicate: str) -> None:
    with pytest.raises(ValueError, match=predicate):
        claimed(predicate)


def test_a_percentage_without_its_source_is_refused() -> None:
    with pytest.raises(ValueError, match="no threshold"):
        claimed("at most 5", threshold="")


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(TypeError, match="componnent"):
        claimed("less", componnent="drive")


def test_each_combination_of_lists_is_a_ratio() -> None:
    ratios = read_claim(
        paper="fujimoto",
        place="-",
        claim="-",
        workload="sql idle",
        phases="all",
        component=["drive", "memory"],
        predicate="at most 5",
        threshold="-",
        against="plain",
        ratios=[{"configuration": ["opal", "plain"]}, {"against": "opal", "predicate": "more"}],
    ).ratios
    assert [(r.component, r.configuration, r.against, r.predicate) for r in ratios] == [
        ("drive", "opal", "plain", "at most"),
        ("drive", "plain", "plain", "at most"),
        ("memory", "opal", "plain", "at most"),
        ("memory", "plain", "plain", "at most"),
        ("drive", "", "opal", "more"),
        ("memory", "", "opal", "more"),
    ]
    assert ratios[0].workload == ("sql", "idle")


def test_published_ratios_are_fractions_of_printed_values() -> None:
    assert published_ratio("") is None
    assert published_ratio("2/4 8/4") == pytest.approx(1.0)
    assert published_ratio("loss 20") == pytest.approx(1.25)
    assert published_ratio("6/2 beside loss 50") == pytest.approx(1.5)
    printed = {c.paper: {p.printed for p in published(c.paper)} for c in citations()}
    for paper, text in re.findall(
        r"(?ms)^- paper: (\w+)(.*?)(?=^- paper|\Z)", (FOLDER / "claims.yml").read_text("utf-8")
    ):
        for numbers in re.findall(r"theirs: ([^,}\n]+)", text):
            assert set(re.findall(r"[\d.]+", numbers)) <= printed[paper], numbers


def test_every_claim_names_known_workloads_and_phases(paper: Results, papers: Results) -> None:
    names = {(w, p) for r in (paper, papers) for w, p in phases_of(r)}
    names |= {
        (counterpart.workload, re.sub(r"\(?\\d\+\)?", str(part.size or 2048), part.phase))
        for figure in published()
        for counterpart in counterparts(figure)
        for part in counterpart.singles[0].parts
    }
    names |= {("key_derivation", "pbkdf2-streebog.500000i"), ("video", "read")}
    names |= {("kernel_tree", phase) for phase in ("copy", "delete")}
    known_papers = {citation.paper for citation in citations()}
    for claim in claims():
        assert claim.paper in known_papers and claim.place and claim.text.endswith(".")
        for ratio in claim.ratios:
            assert ratio.component in COMPONENTS and ratio.quantity in QUANTITIES
            assert {ratio.configuration, ratio.against} <= {"", *configurations()}
            assert ratio.medium in ("", *MEDIA) and ratio.per in ("", *WORK)
            assert (ratio.configuration, ratio.phases) != (ratio.against, ratio.against_phases)
            for workload, phase, other in (cell for group in ratio.groups for cell in group):
                assert workload in registry.names()
                for pattern in (phase, other):
                    assert any(
                        w == workload and re.fullmatch(pattern, p.replace("\\", ""))
                        for w, p in names
                    ), (workload, pattern)


def phases_of(derived: Results) -> set[tuple[str, str]]:
    rows = derived.energy.select("workload", "phase").unique().iter_rows()
    return {(derived.suite.workload_of(workload), phase) for workload, phase in rows}


def test_a_verdict_follows_from_the_interval_that_is_shown(papers: Results) -> None:
    """Open claims share the 5 %; decided ones were decided at no more than that."""
    tested = decided(papers)
    open_claims = sum(claim.finding == "open" for claim in tested if claim.comparable)
    assert 0 < open_claims < len(tested)
    for claim in tested:
        for ratio in claim.ratios:
            assert ratio.claimed.finding(ratio.comparison, ratio.interval) == ratio.finding
            supported = ratio.finding == "supported"
            if claim.verdict == "open":
                level = (
                    0.05
                    / open_claims
                    / (1 if supported and claim.claim.share == 1 else len(claim.ratios))
                )
                assert ratio.interval == ratio.comparison.interval(level)


def test_a_suite_drawn_from_the_paper_contradicts_none_of_its_claims(paper: Results) -> None:
    tested = decided(paper)
    assert Counter(claim.verdict for claim in tested) == {
        "agrees with the model": 19,
        "open": 11,
        "contradicted by the paper's own figures": 1,
    }
    assert {r.claimed.component for c in tested for r in c.ratios} == {"system"}
    reading = next(c for c in tested if c.claim.text.startswith("Reading 10 MB takes much longer"))
    assert [known(r.claimed.theirs) for r in reading.ratios] == pytest.approx(
        [r.interval.mean for r in reading.ratios], rel=0.1
    )


def test_the_lab_of_other_conditions_decides_no_claim(tmp_path: Path) -> None:
    folder, _ = bundle.unpack(EXAMPLES / "lab-one-disk.tar.gz", tmp_path / "lab")
    tested = decided(results(folder))
    assert {claim.claim.paper for claim in tested} == {"fujimoto"}
    assert {claim.verdict for claim in tested} == {"not comparable"}
    written = next(c for c in tested if c.claim.text.startswith("Writing 1 GB takes only"))
    assert {"a file of 384 MiB", "with fsync", "on one disk"} <= set(written.ratios[0].differs)


def find_ratio(tested: list[DecidedClaim], **fields: Any) -> DecidedRatio:
    ratios = [r for c in tested for r in c.ratios]
    return next(r for r in ratios if all(getattr(r.claimed, k) == v for k, v in fields.items()))


def test_claimed_ratios_have_the_expected_values(papers: Results) -> None:
    tested = decided(papers)
    encrypting = find_ratio(tested, what="AES against DES", quantity="time")
    assert encrypting.interval.mean == pytest.approx(60 / 2000, rel=0.05)  # per byte
    grown = find_ratio(tested, configuration="opal", beside_workload=("sql",))
    assert grown.interval.mean == pytest.approx(1.01 / 1.2, rel=0.05)  # SQL costs the same
    twofish = find_ratio(
        tested, configuration="truecrypt-twofish256", against="truecrypt-serpent256"
    )
    assert (twofish.configuration, twofish.against) == ("tcrypt-twofish256", "tcrypt-serpent256")
    assert twofish.interval.mean == pytest.approx(1.5 / 1.8, rel=0.05)


def test_a_claim_on_a_medium_takes_a_disk_of_that_medium(papers: Results) -> None:
    asked = {"configuration": "truecrypt-aes256", "against": "truecrypt-serpent256"}
    of_media = [r for c in decided(papers) for r in c.ratios if r.claimed.medium]
    assert of_media and all(r.differs == ("on a disk of unknown kind",) for r in of_media)
    stacks = tuple(replace(stack, disk="ssd") for stack in papers.suite.plan.configurations)
    on_ssd = replace(papers, suite=replanned(papers.suite, configurations=stacks))
    ratio = find_ratio(decided(on_ssd), medium="ssd", **asked)
    assert ratio.interval.mean == pytest.approx(1.3 / 1.8, rel=0.05)
    assert {r.claimed.medium for c in decided(on_ssd) for r in c.ratios} == {"", "ssd"}
    assert ratio.verdict == "agrees with the model"


def test_a_meters_error_widens_joules_and_not_seconds(paper: Results) -> None:
    ratios = [ratio for claim in decided(paper) for ratio in claim.ratios]
    assert all(
        (ratio.comparison.systematic > 0) == (ratio.claimed.quantity in ("energy", "power"))
        for ratio in ratios
    )


def test_the_table_of_claims_has_a_row_for_each_ratio(paper: Results) -> None:
    table, tested = claim_table(paper), decided(paper)
    ratios = [(c.claim.text, c.verdict, r) for c in tested for r in c.ratios]
    assert table.select("claim", "verdict").rows() == [(text, word) for text, word, _ in ratios]
    assert table["ratio"].to_list() == [r.interval.mean for *_, r in ratios]
    assert table["published"].to_list() == [r.claimed.theirs for *_, r in ratios]
    percents = table.filter(pl.col("predicate").str.contains("%"))
    assert percents.height and "" not in percents["threshold"].to_list()
    written = csv_tables(paper)
    assert written["claims.csv"].decode().count("\n") == table.height + 1
    assert written["published.csv"].decode().count("\n") == figure_table(paper).height + 1


def test_figures_beside_ours_have_both_ratios(paper: Results) -> None:
    table = figure_table(paper).filter(place="Section IV.D", configuration="dmcrypt-aes128")
    (row,) = table.iter_rows(named=True)
    assert row["published_ratio"] == pytest.approx(7.59 / 5.175)
    assert row["ratio"] == pytest.approx(7.59 / 5.175, rel=0.1)
    assert (row["verdict"], row["differs"]) == ("agrees", [])


def test_the_page_has_a_row_for_each_claim(papers: Results) -> None:
    tested = decided(papers)
    tables = [t for t in pieces(Table, published_section(papers)) if ": claims" in t.caption]
    rows = [len(table.rows) for table in tables]
    assert sum(rows) == len(tested)
    assert [row[-1] for t in tables for row in t.rows] == [claim.verdict for claim in tested]
    assert len(tables) == len(citations())
    texts = [row[0] for t in tables for row in t.rows]
    for claim, text in zip(tested, texts, strict=True):
        partial = f"{len(claim.ratios)} of {len(claim.claim.ratios)} ratio"
        assert (partial in text) == (len(claim.ratios) < len(claim.claim.ratios))
