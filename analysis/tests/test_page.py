"""What the page says and how: matrix, words, terms, names, scripts."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.report import (
    answer,
    first_page,
    render,
    steadiness_section,
    tables,
    texts,
    trust_section,
    view,
    words,
)
from analysis.report.sections import Report
from analysis.report.view import Answer, Columns, Matrix, Page, Paragraph, Picture, Table
from analysis.report.words import PhaseName, parse
from analysis.stats.comparison import Comparison, judge_comparisons
from analysis.stats.results import Results, results
from analysis.suite import records
from analysis.suite.records import Run
from analysis.tests.faulty_suite import FaultySuite
from analysis.tests.known import analysed, known, replanned
from analysis.tests.pages import (
    OWN_SCRIPTS,
    UNWANTED,
    Parsed,
    live_markup,
    pieces,
    text_of,
    whole_page,
)
from contract import schema
from contract.documents import CipherLayer, OtherSource, Proof
from contract.estimates import Estimate
from contract.plan import DeclaredAnalysis, WorkloadEntry
from validation.synthetic.suite import SLOWER, STACKS, Options, write_suite
from validation.synthetic.tables import suite_of


def compared(ratio: float, low: float | None, high: float | None) -> Comparison:
    if low is None or high is None:
        return Comparison(1, ratio, 0.02)
    error = math.log(high / low) / 2 / float(stats.t.ppf(0.975, 19))
    return judge_comparisons([Comparison(20, ratio, 0.02, error, 19.0)])[0]


def shown(derived: Results) -> Matrix:
    (matrix,) = (block for block in tables.matrix(derived) if isinstance(block, Matrix))
    return matrix


def test_provenance_names_the_kernels_drivers_of_aes(derived: Results) -> None:
    def drivers(run: Run, *names: str | None) -> Run:
        return replace(run, proof=Proof(ok=True, layers=tuple(map(CipherLayer, names))))

    driver_names = ("xts-aes-lib", "xts-aes-vaes-avx2", None, "xts(ecb-serpent-avx2)")
    runs = tuple(drivers(run, *driver_names) for run in derived.suite.runs)
    suite = replace(derived.suite, runs=runs)
    facts = [texts.say("provenance.drivers"), "xts-aes-lib, xts-aes-vaes-avx2"]
    for shown_results, names_them in ((replace(derived, suite=suite), True), (derived, False)):
        rows = [
            row for table in pieces(Table, Report(shown_results).figures()) for row in table.rows
        ]
        assert (facts in rows) == names_them


def test_the_page_can_be_read_aloud(report_html: str, page: Parsed) -> None:
    assert page.open == []
    assert report_html.count('<td class="cell') == 6 * 3
    assert page.headings[:2] == [1, 2]
    assert page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(page.headings))
    assert all(page.pictures)
    assert all(page.tables)
    assert set(page.scopes) == {"col", "row"}
    assert len(page.anchors) == len(set(page.anchors))
    assert {link.removeprefix("#") for link in page.links} <= set(page.anchors)
    assert {"figures", "money", "workload-sql", "trust"} <= set(page.anchors)


def test_the_page_is_a_screen_and_six_folds(report_html: str, derived: Results) -> None:
    sections = re.findall(r'<details class="section" id="(\w+)"><summary><h2>', report_html)
    assert sections == ["workloads", "time", "money", "trust", "published", "figures"]
    assert "<details open" not in report_html
    assert len(report_html.encode()) < 600_000
    head = report_html.partition("<main>")[2].partition('<details class="section"')[0]
    shown = re.sub(r"<[^>]*>", " ", head)
    assert len(shown.split()) < 600
    assert shown.count("modelled") == 1
    # The figures of the first screen are nowhere in the sections again.
    below = text_of(Report(derived).page().sections)
    for line in first_page.lines(derived, derived.suite.folder):
        assert line.verdict not in below


def test_of_a_page_only_pictures_repeat_that_it_is_modelled(derived: Results) -> None:
    page = Report(derived).page()
    texts_ = [*pieces(Paragraph, page), *pieces(view.Bullets, page), *pieces(Answer, page)]
    assert not [text for text in texts_ if "modelled" in text_of(text)]
    titles = [picture.drawn.get_suptitle() for picture in pieces(Picture, page)]
    assert titles and all(title.endswith("(modelled)") for title in titles)
    assert page.origin == "modelled"


def test_a_long_table_only_is_sorted_and_filtered() -> None:
    script = (render.TEMPLATES / "report.js").read_text(encoding="utf-8")
    assert "LONG = 16" in script


def test_alike_reservations_are_one_remark(night: FaultySuite) -> None:
    remarks = trust_section.remarks(results(night.folder))
    (tries,) = [remark for remark in remarks if "void and repeated" in remark.text]
    assert "1 more like it" in tries.text
    assert len(tries.more) == 1 and "void and repeated" in tries.more[0]
    assert len({remark.text for remark in remarks}) == len(remarks)


def test_what_the_host_kept_is_the_first_remark(derived: Results) -> None:
    run = derived.suite.runs[5]
    kept = pl.when(pl.col("run_id") == run.run_id).then(0.53).otherwise(0.001)
    energy = derived.all_energy.with_columns(
        cpus=pl.lit(2), cpu_stolen_s=kept * pl.col("duration_s") * 2
    )
    (first, *_) = trust_section.remarks(replace(derived, all_energy=energy))
    assert "53 %" in first.text and words.name_of(run.workload) in first.text
    assert f"block {run.block + 1}" in first.text
    calm = energy.with_columns(cpu_stolen_s=0.01 * pl.col("duration_s"))
    assert trust_section.remarks(replace(derived, all_energy=calm)) == ()


def test_the_matrix_has_a_cell_for_each_workload_and_configuration(derived: Results) -> None:
    page = text_of(tables.matrix(derived))
    (rows,) = (group.rows for group in shown(derived).groups)
    assert [len(cells) for _, cells in rows] == [3] * 6
    for key, c in derived.family.versus.items():
        if key[3] == "system":
            change, _, interval = words.change_in(c).partition(" ")
            assert change in page and words.sign(c) in page
            assert interval.rpartition("[")[2] in page
    ratios = tables.time_ratios(derived)
    rest = derived.energy.filter(workload="sql", component="system", phase="all")
    seconds = {
        name: np.exp(np.log(rest.filter(configuration=name)["duration_s"].to_numpy()).mean())
        for name in ("plain", "dmcrypt-aes256")
    }
    ratio = ratios["sql", "dmcrypt-aes256"]
    assert ratio == pytest.approx(seconds["dmcrypt-aes256"] / seconds["plain"])
    c = next(
        c
        for key, c in derived.family.versus.items()
        if key[:2] == ("sql", "dmcrypt-aes256") and key[3] == "system"
    )
    below = tables.cell_of(c, ratio).below
    assert below[1:] == (f"time ×\u202f{ratio:.2f}", f"power ×\u202f{c.ratio / ratio:.2f}")


def test_a_matrix_of_many_configurations_has_them_as_rows(wide: Results) -> None:
    matrix = shown(wide)
    (group,) = matrix.groups
    assert matrix.headers[0] == "Configuration"
    assert [len(cells) for _, cells in group.rows] == [2] * 16


def test_a_cell_without_runs_says_so(derived: Results) -> None:
    gone = (pl.col("workload") == "sql") & (pl.col("configuration") == "opal")
    page = text_of(tables.matrix(replace(derived, all_energy=derived.energy.filter(~gone))))
    assert page.count("no finished run on both sides") == 1


@pytest.mark.parametrize(
    ("comparison", "word", "sign"),
    [
        (compared(1.2, 1.1, 1.3), "significant increase", "▲"),
        (compared(0.8, 0.7, 0.9), "significant decrease", "▼"),
        (compared(1.001, 0.99, 1.01), "equivalent", "≈"),
        (compared(1.01, 1.005, 1.015), "equivalent (significant increase)", "≈▲"),
        (compared(0.99, 0.985, 0.995), "equivalent (significant decrease)", "≈▼"),
        (compared(1.1, 0.9, 1.3), "inconclusive", "?"),
        (compared(1.1, None, None), "inconclusive", "?"),
    ],
)
def test_every_verdict_has_its_word_and_its_sign(
    comparison: Comparison, word: str, sign: str
) -> None:
    c = comparison
    assert words.verdict_of(c, modes=False) == word
    assert ("may be missed" in words.verdict_of(c)) == (c.verdict == "equivalent")
    assert words.sign(c) == sign


def test_a_contrast_declared_the_other_way_round_is_turned(derived: Results) -> None:
    turned = replace(
        derived,
        suite=replanned(derived.suite, analysis=DeclaredAnalysis(contrasts=(("opal", "plain"),))),
    )
    usual, other = (answer.contrast_of(f, f.suite.baseline, "opal") for f in (derived, turned))
    assert usual is not None
    assert other is not None
    assert known(other.comparison).ratio == pytest.approx(known(usual.comparison).ratio)
    ends = [known(c.comparison).interval(0.05) for c in (usual, other)]
    assert known(ends[1].low) == pytest.approx(known(ends[0].low))
    assert known(ends[1].high) == pytest.approx(known(ends[0].high))
    assert (other.base, other.other) == ("plain", "opal")


def test_the_names_in_the_plan_do_not_matter(tmp_path: Path) -> None:
    stacks = {"bare": "plain", "inside": "opal", "outside": "dmcrypt-aes128"}
    with pytest.MonkeyPatch.context() as patch:
        for name, like in stacks.items():
            patch.setitem(STACKS, name, STACKS[like])
            patch.setitem(SLOWER, name, SLOWER[like])
        options = Options(configurations=tuple(stacks), workloads=("sql", "idle"), interval_ms=100)
        write_suite(tmp_path / "s", options)
    derived = results(tmp_path / "s")
    assert not UNWANTED.search(text_of(Report(derived).page()))
    lines = first_page.lines(derived, derived.suite.folder)
    costs = {line.code: line for line in lines if line.question == "cost"}
    assert costs["more"].facts["configuration"] == "outside"
    assert "unknown" not in costs
    (group,) = shown(derived).groups
    assert [len(cells) for _, cells in group.rows] == [2] * 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Estimate(329.895179, 329.895179, 329.8951791, n=3), "329.90 ± <0.01"),
        (Estimate(0.30006, 0.29983, 0.30029, n=3), "0.3001 ± 0.0002"),
        (Estimate(-1e-9, -2e-9, 1e-9, n=3), "0.0000 ± <0.0001"),
        (Estimate(12.345, 11.0, 13.69, n=3), "12.3 ± 1.3"),
        (Estimate(12.345, None, None, n=1), "12.3"),
        (Estimate(120000.0, 119000.0, 121000.0, n=3), "120\u202f000 ± 1\u202f000"),
    ],
)
def test_joules_have_the_digits_of_their_interval(value: Estimate, text: str) -> None:
    assert words.plus_minus(value) == text


def test_changes_have_the_digits_of_their_interval() -> None:
    assert words.change_of(1.0421, 1.0131, 1.0711) == "+4.2 % [+1.3, +7.1]"
    assert words.change_of(1.0421, 1.0401, 1.0441) == "+4.21 % [+4.01, +4.41]"
    assert words.change_of(0.9, 0.5, 1.5) == "−10 % [−50, +50]"
    assert words.change_of(1.1, None, None) == "+10.0 %"
    assert words.change_of(1.05, 0.08, 1e20) == "+5 % [−92, > +1\u202f000]"
    assert words.interval_of(0.08, 1e20) == "−92 % to > +1\u202f000 %"
    assert words.change_of(None, None, None) == words.NOTHING
    assert words.percent(1.0) == "±0.0 %"
    assert words.p_value(0.0004) == "< 0.001"
    assert words.p_value(0.0123) == "0.012"
    assert words.p_value(0.3) == "0.30"


@pytest.mark.parametrize(
    ("limit", "percent", "ratio"),
    [
        (1.0003, "+0.03", "1.0003"),
        (1.00004, "+0.004", "1.00004"),
        (0.9997, "−0.03", "0.9997"),
        (1.00051, "+0.1", "1.001"),
        (1 + 1e-12, "±0.0", "1.000"),
    ],
)
def test_a_limit_near_no_change_shows_its_side(limit: float, percent: str, ratio: str) -> None:
    assert words.change_of(1.03, limit, 1.08) == f"+3.0 % [{percent}, +8.0]"
    assert words.interval_of(limit, 1.08) == f"{percent} % to +8.0 %"
    assert words.ratio_of(1.03, limit, 1.08) == f"1.030 [{ratio}, 1.080]"


def test_a_synthetic_suite_is_marked_at_the_top(tmp_path: Path) -> None:
    options = Options(blocks=2, interval_ms=100, workloads=("idle",), origin="synthetic")
    derived = analysed(tmp_path / "s", options)
    page = Report(derived).page()
    head = text_of(page.facts)
    assert "no machine was measured" in head
    assert page.origin == "synthetic"
    titles = [picture.drawn.get_suptitle() for picture in pieces(Picture, page)]
    assert titles and all(title.endswith("(synthetic)") for title in titles)


@pytest.mark.usefixtures("no_svg")
def test_seventeen_configurations_fill_no_page_with_nonsense(wide: Results) -> None:
    text = whole_page(wide)
    page = Parsed(text)
    assert page.open == []
    assert not UNWANTED.search(page.text)
    assert len(text) < 500_000


def test_a_run_that_stands_out_is_ringed_and_widens_the_other_workloads(derived: Results) -> None:
    """38, 37, 43 and 15 J of four runs, as a lab suite had of SQL; the others scatter by 7 %."""
    factors = {("plain", 3): 0.4, ("plain", 2): 1.1}
    generator = np.random.default_rng(3)
    rows = derived.energy.filter(workload="sql", component="system", phase="all", block=0)
    every = pl.concat(
        rows.with_columns(
            block=pl.lit(b, pl.Int64()),
            energy_j=39
            * pl.Series(generator.lognormal(0, 0.05, len(rows)))
            * pl.Series([factors.get((c, b), 1.0) for c in rows["configuration"]]),
        )
        for b in range(4)
    )
    sql = replanned(derived.suite, workloads=(WorkloadEntry("sql", {}),))
    two = replace(derived, suite=sql, all_energy=every)
    assert two.family.events["plain"].events == {("sql", 3)}
    assert steadiness_section.flagged(two, "sql") == {(3, "plain")}
    assert steadiness_section.flagged(two, "video") == set()
    assert not any(e.events for e in derived.family.events.values())
    assert "1 of 4" in text_of(steadiness_section.steadiness_section(two))


ROOT = Path(__file__).parents[2]
LONGEST = 1100  # characters of the lines: what a phone's first two screens hold with the picture


def test_the_first_screen_is_answers_a_picture_and_the_matrix(derived: Results) -> None:
    blocks = Report(derived).head()
    (columns,) = pieces(Columns, blocks)
    lines = first_page.lines(derived, derived.suite.folder)
    assert all(isinstance(block, Answer) for block in columns.first)
    assert isinstance(columns.aside[0], Picture)
    assert any(isinstance(block, Matrix) for block in blocks)
    parts = pieces(Answer, blocks)
    assert (
        sum(len(line.label + line.verdict + line.reason + line.command) for line in parts) < LONGEST
    )
    assert [line.verdict for line in parts] == [line.verdict for line in lines]
    assert [part.label for part in parts if part.label] == ["May I believe it?", "What next?"]


def page_of(*blocks: Paragraph | Table, explained: bool = True) -> str:
    terms = texts.catalogue().terms if explained else ()
    return render.html(Page("t", "t", (), blocks, (), "measured", terms))


def test_a_term_is_explained_where_it_first_appears() -> None:
    text = "A Block and blocks, R&D, blockage; the 95 % intervals, <b>void</b>."
    page = page_of(Paragraph(text, ""))
    assert page.count('popovertarget="term-block">Block</button> and blocks,') == 1
    assert page.count('popovertarget="term-95-percent-interval">') == 1
    assert 'id="term-95-percent-interval" popover' in page
    assert ">95\u00a0% intervals</button>,</span> &lt;b&gt;" in page
    assert "R&amp;D, blockage" in page
    parsed = Parsed(page)
    assert parsed.open == []
    assert len(parsed.anchors) == len(set(parsed.anchors))
    assert "popovertarget" not in page_of(Paragraph(text, ""), explained=False)
    # Only what occurs is explained, once.
    assert page.count(" popover class=") == 3


def test_every_term_is_in_the_glossary_and_leads_to_its_meaning() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    entries = " ".join(re.findall(r"^- \*\*(.+?)\*\*", glossary, re.M)) + " modelled synthetic"
    names = [term.name for term in texts.catalogue().terms]
    assert len(names) > 20
    assert [name for name in names if name not in entries] == []


def test_a_browser_runs_only_our_scripts() -> None:
    page = page_of(Paragraph("<script>alert(1)</script> gpj\u202e", ""))
    assert "\u202e" not in page and r"gpj\u202e" in page
    assert live_markup(page) == ""
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert script in OWN_SCRIPTS
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert live_markup("<script>alert(1)</script>")
    assert live_markup("<script>alert(1)")
    assert live_markup(f"<script src='x'>{script}</script>")


def with_sources(derived: Results, give: Callable[[int], dict[str, object]]) -> Results:
    runs = tuple(
        replace(
            run,
            other_sources={
                **run.other_sources,
                **{n: schema.read(OtherSource, s) for n, s in give(run.block).items()},
            },
        )
        for run in derived.suite.runs
    )
    return replace(derived, suite=replace(derived.suite, runs=runs))


def test_other_sources_have_a_table_and_explanations(derived: Results) -> None:
    assert tables.other_sources(derived) == ()

    def give(block: int) -> dict[str, object]:
        zone = {"zone": "battery", "energy_uj": (100 + block) * 1_000_000}
        times = {"t_start_ns": 0, "t_end_ns": 10_000_000_000}
        broken = {**times, "zones": [{"zone": "gpu0", "energy_uj": None if block else 5_000_000}]}
        return {"battery": {**times, "zones": [zone]}, "nvml": broken}

    blocks = tables.other_sources(with_sources(derived, give))
    (table,) = pieces(Table, blocks)
    battery = [row for row in table.rows if row[0] == "battery"]
    assert len(battery) == len(derived.suite.workloads) * len(derived.suite.configurations)
    assert known(battery)[0][4:] == ["101.0 ± 2.5", "3"]
    (gpu, *_) = [row for row in table.rows if row[0] == "nvml"]
    assert gpu[4:] == ["5.00", "1"]
    text = text_of(blocks)
    assert "but only on battery" in text
    assert "nvml: no figure in 48 runs (a reading failed)" in text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1\u202f234.5 ± 6.0", 1234.5),
        ("−4.2 % [−5.0, −3.4]", -4.2),
        ("1.23 ± 0.04 mJ/MB", 0.00123),
        ("< 0.001", 0.001),
        ("–", None),
    ],
)
def test_cells_are_sorted_by_their_figures(text: str, value: float | None) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing: the script's reading of figures is not tried")
    script = (render.TEMPLATES / "report.js").read_text(encoding="utf-8")
    prefix = re.search(r"const PREFIX = .*?;", script)
    number = re.search(r"const number = .*?\n  };", script, re.DOTALL)
    assert prefix and number
    code = f"{prefix[0]}\n{number[0]}\nconsole.log(JSON.stringify(number({json.dumps(text)})))"
    process = subprocess.run([node, "-e", code], capture_output=True, text=True, check=True)
    assert json.loads(process.stdout) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize(
    ("label", "called"),
    [
        ("TrueCrypt AES–Twofish–Serpent-256, on the SED", True),
        ("", False),
        ("$x_1$", False),
        ("<b>", False),
        ("two\nlines", False),
        ("x" * 61, False),
    ],
)
def test_a_configuration_has_its_valid_label_or_its_name(label: str, called: bool) -> None:
    suite = suite_of({"c1": "plain"}, ())
    (stack,) = suite.plan.configurations
    suite = replanned(suite, configurations=(replace(stack, label=label),))
    assert suite.label("c1") == (label if called else "c1")


def test_equal_labels_are_distinguished_by_names() -> None:
    suite = suite_of({"plain": "plain", "again": "plain", "opal": "opal"}, ())
    labels = {"plain": "plain", "again": "plain", "opal": "Opal drive"}
    stacks = (replace(stack, label=labels[stack.name]) for stack in suite.plan.configurations)
    suite = replanned(suite, configurations=tuple(stacks))
    assert [suite.label(name) for name in ("plain", "again", "opal")] == [
        "plain",
        "plain (again)",
        "Opal drive",
    ]


@pytest.mark.parametrize(
    ("parts", "worst"),
    [
        (["measured", "measured"], "measured"),
        (["measured", "modelled"], "modelled"),
        (["modelled", "synthetic", "measured"], "synthetic"),
        (["measured", "who knows"], "modelled"),
        ([], "measured"),
    ],
)
def test_several_origins_give_the_worst(parts: list[str], worst: str) -> None:
    assert records.worst_origin(parts) == worst


@pytest.mark.parametrize(
    ("phase", "name", "shown"),
    [
        ("read-large", PhaseName(("read-large",)), "read-large"),
        ("read.4096B", PhaseName(("read",), 4096, "B"), "read 4\u00a0KB"),
        (
            "aes-128-cbc.encrypt.text.20971520B",
            PhaseName(("aes-128-cbc", "encrypt", "text"), 20 * 2**20, "B"),
            "aes-128-cbc encrypt text 20\u00a0MB",
        ),
        (
            "des-ecb.encrypt.20527B",
            PhaseName(("des-ecb", "encrypt"), 20527, "B"),
            "des-ecb encrypt 20\u202f527\u00a0B",
        ),
        (
            "pbkdf2-sha512.500000i",
            PhaseName(("pbkdf2-sha512",), 500_000, "i"),
            "pbkdf2-sha512 500\u202f000 iterations",
        ),
        ("argon2id.t4-m64KiB-p2", PhaseName(("argon2id", "t4-m64KiB-p2")), "argon2id t4-m64KiB-p2"),
        ("0B", PhaseName(("0B",)), "0B"),
        ("", PhaseName(("",)), ""),
    ],
)
def test_a_phase_name_is_parsed_and_shown(phase: str, name: PhaseName, shown: str) -> None:
    assert parse(phase) == name
    assert name.shown == shown
