"""Latencies from fio's reports: what is read, refused, compared and shown."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from analysis.report.sections import Report
from analysis.report.view import Table
from analysis.report.workload_section import responsiveness_section
from analysis.stats.responsiveness import delays
from analysis.stats.results import Results, results
from analysis.suite.latencies import Latency, parse
from analysis.suite.suite_folder import read
from analysis.tests.known import known
from analysis.tests.pages import pieces, text_of
from validation.synthetic.suite import Options, write_suite

REAL = Path(__file__).with_name("fio-3.33.json")  # made by fio 3.33, randwrite of 2048 requests
P99_NS = {"plain": (100_000, 125_000, 110_000), "opal": (150_000, 150_000, 150_000)}


def report(p99_ns: int, **changes: Any) -> str:
    percentile = {"50.000000": p99_ns // 2, "99.000000": p99_ns, "99.900000": 2 * p99_ns}
    asked = {"clat_ns": {"N": 1000, "percentile": percentile, **changes}}
    return json.dumps({"jobs": [{"read": asked, "write": {"clat_ns": {"N": 0}}}]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three blocks of one phase by fio on two configurations."""
    options = Options(
        blocks=3, interval_ms=500, workloads=("sql",), configurations=("plain", "opal")
    )
    write_suite(tmp_path / "s", options, seal=False)
    for path in (tmp_path / "s" / "runs").glob("*/run.json"):
        document = json.loads(path.read_text())
        for phase in document["phases"]:
            phase["work"] = {"bytes": 4096.0}
        path.write_text(json.dumps({**document, "program": "fio"}))
        if document["workload"] == "sql":
            p99_ns = P99_NS[document["configuration"]][document["block"]]
            keep(path.parent, report(p99_ns))
    return tmp_path / "s"


def keep(run: Path, text: str) -> None:
    (run / "kept").mkdir(exist_ok=True)
    (run / "kept" / "query.json").write_text(text)


@pytest.fixture
def derived(folder: Path) -> Results:
    return results(folder)


def test_the_percentiles_are_those_of_fios_own_output() -> None:
    written = json.loads(REAL.read_text())["jobs"][0]["write"]["clat_ns"]["percentile"]
    ns = {"p50": written["50.000000"], "p99": written["99.000000"], "p99.9": written["99.900000"]}
    assert parse("write-random", REAL) == [Latency("write-random", "write", ns)]


@pytest.mark.parametrize(("requests", "names"), [(999, {"p50", "p99"}), (99, {"p50"}), (0, None)])
def test_few_requests_have_no_high_percentile(
    tmp_path: Path, requests: int, names: set[str] | None
) -> None:
    (tmp_path / "f.json").write_text(report(1000, N=requests))
    assert [set(latency.ns) for latency in parse("f", tmp_path / "f.json")] == [names] * bool(names)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"jobs": []}',
        report(1000, N=-1),
        report(1000, percentile={"50.000000": "fast"}),
        report(1000, percentile={"50.000000": 2**64}),
        report(1000, percentile={"50.000000": 0}),
        report(1000, percentile={"50.000000": 9, "99.000000": 8}),
        report(1000, percentile={"50.000000": float("nan")}),
        report(1000) + " " * 2**20,
        "[" * 100_000,
    ],
)
def test_a_hostile_report_is_one_problem_and_no_figure(folder: Path, text: str) -> None:
    before = read(folder)
    run = min(before.latencies)
    keep(folder / "runs" / run, text)
    suite = read(folder)
    assert set(before.latencies) - set(suite.latencies) == {run}
    (problem,) = set(suite.problems) - set(before.problems)
    assert problem.startswith("1 report(s) of fio") and run in problem


def test_a_phase_name_that_leaves_the_folder_is_ignored(folder: Path) -> None:
    before = read(folder)
    path = folder / "runs" / min(before.latencies) / "run.json"
    (path.parents[2] / "aside.json").write_text(report(1000))
    document = json.loads(path.read_text())
    (phase,) = (phase for phase in document["phases"] if phase["name"] == "query")
    phase["name"] = "../../../aside"
    path.write_text(json.dumps(document))
    assert path.parent.name not in read(folder).latencies


def test_ratio_and_median_are_those_by_hand(derived: Results) -> None:
    plain, opal = (delay for delay in delays(derived.suite) if delay.percentile == "p99")
    assert (plain.median_ms, opal.median_ms, plain.ratio) == (0.11, 0.15, None)
    logs = [math.log(b / a) for a, b in zip(P99_NS["plain"], P99_NS["opal"], strict=True)]
    low, high = stats.t.interval(0.95, 2, sum(logs) / 3, stats.sem(logs))
    ratio = known(opal.ratio)
    figures = ratio.ratio, ratio.low, ratio.high
    assert figures == pytest.approx([math.exp(x) for x in (sum(logs) / 3, low, high)])
    assert opal.work == ("sql", "query", "read") and opal.n == 3


def test_the_section_is_a_table_without_a_verdict(derived: Results) -> None:
    (table,) = pieces(Table, responsiveness_section(derived))
    assert [len(row) for row in table.rows] == [9, 9]
    p99 = table.headers.index("p99 (ms)")
    assert [row[p99] for row in table.rows] == ["0.110", "0.150"]
    cells = [cell for _, row in table.body for cell in row]
    assert cells and not any(cell.kind.startswith("verdict") for cell in cells)
    (time,) = [part for part in Report(derived).page().sections if part.anchor == "time"]
    assert table in pieces(Table, time.blocks)


def test_without_reports_there_is_no_section(whole_suite: tuple[Path, Any]) -> None:
    page = Report(results(whole_suite[0])).page()
    assert "p99" not in text_of(page)
