"""What the first screen answers, what its terms mean, and what a browser's script finds there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.report import first_page, other_sources, render, texts
from analysis.report.figures import timeline
from analysis.report.sections import Report, terms
from analysis.report.view import (
    Answer,
    Columns,
    Matrix,
    Page,
    Paragraph,
    Picture,
    Section,
    Table,
    Trace,
)
from analysis.stats.results import Results
from analysis.tests.known import known
from analysis.tests.pages import OWN_SCRIPTS, Parsed, live_markup, pieces, text_of
from contract import schema
from contract.documents import OtherSource

ROOT = Path(__file__).parents[2]
LONGEST = 900  # characters of the lines: what 390 × 844 pixels hold below the heading


def test_the_first_screen_is_a_sentence_a_picture_and_the_matrix(derived: Results) -> None:
    blocks = Report(derived).answer()
    (columns,) = pieces(Columns, blocks)
    lines = first_page.lines(derived, derived.suite.folder)
    sentence, *parts = pieces(Answer, blocks)
    assert sentence in columns.first
    assert any(isinstance(block, Matrix) for block in columns.first)
    assert isinstance(columns.aside[0], Picture)
    assert (
        sum(len(line.label + line.verdict + line.reason + line.command) for line in parts) < LONGEST
    )
    assert [line.verdict for line in parts] == [line.verdict for line in lines]


def page_of(*blocks: Paragraph | Table) -> str:
    sections = (Section("A", "a", blocks), Section("Terms", "terms", terms()))
    return render.html(Page("t", "t", (), sections))


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
    assert "popovertarget" not in render.html(Page("t", "t", (), (Section("A", "a", ()),)))


def test_every_term_is_in_the_glossary_and_leads_to_its_meaning() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    entries = " ".join(re.findall(r"^- \*\*(.+?)\*\*", glossary, re.M)) + " modelled synthetic"
    names = [term.name for term in texts.catalogue().terms]
    assert len(names) > 20
    assert [name for name in names if name not in entries] == []


def test_a_browser_runs_our_scripts_alone() -> None:
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


def test_a_trace_that_can_be_zoomed_holds_the_curves(derived: Results) -> None:
    run = next(run for run in derived.suite.runs if run.workload == "kernel_tree")
    curves = timeline.curves(derived.suite, run, derived.clock)
    name, seconds, watts = curves[0]
    seconds, watts = seconds.copy(), watts.copy()
    seconds[5] = watts[5] = np.nan
    shown = json.loads(timeline.as_json(run, [(name, seconds, watts), *curves[1:]]))
    assert shown["names"] == ["system", "drive", "CPU package"]
    times, power_w = shown["curves"][0]
    assert power_w[5] is None
    assert times[4] < times[5] < times[6]
    assert [p[0] for p in shown["phases"]][-1] == "tail"
    assert power_w[7] == pytest.approx(watts[7], abs=0.006)
    page = Report(derived).page()
    assert len(pieces(Trace, page)) == len(derived.suite.workloads)


def test_the_picture_of_a_long_curve_keeps_means_and_gaps() -> None:
    seconds, watts = np.arange(2000.0), np.repeat(np.arange(500.0), 4)
    assert timeline._coarser(("a", seconds, watts))[2].tolist() == list(range(500))
    seconds[[10, 401]] = watts[[10, 401]] = np.nan
    _, coarse_s, coarse_w = timeline._coarser(("a", seconds, watts))
    assert np.flatnonzero(np.isnan(coarse_w)).tolist() == [3, 102]
    assert np.isnan(coarse_s).tolist() == np.isnan(coarse_w).tolist()
    assert coarse_w[2] == 2


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


def test_other_sources_have_a_table_and_what_they_see(derived: Results) -> None:
    assert other_sources.section(derived) == ()

    def give(block: int) -> dict[str, object]:
        zone = {"zone": "battery", "energy_uj": (100 + block) * 1_000_000}
        times = {"t_start_ns": 0, "t_end_ns": 10_000_000_000}
        broken = {**times, "zones": [{"zone": "gpu0", "energy_uj": None if block else 5_000_000}]}
        return {"battery": {**times, "zones": [zone]}, "nvml": broken}

    blocks = other_sources.section(with_sources(derived, give))
    (table,) = pieces(Table, blocks)
    battery = [row for row in table.rows if row[0] == "battery"]
    assert len(battery) == len(derived.suite.workloads) * len(derived.suite.configurations)
    assert known(battery)[0][4:] == ["101.0 ± 2.5", "10.1", "3"]
    (gpu, *_) = [row for row in table.rows if row[0] == "nvml"]
    assert gpu[4:] == ["5.00", "0.500", "1"]
    text = text_of(blocks)
    assert "only while it runs on its battery" in text
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
