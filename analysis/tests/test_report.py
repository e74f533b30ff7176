"""The report's files: what they hold, of hostile suites and of several hosts, too."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl
import pytest

from analysis.report import answer, build, first_page, hosts_page, words
from analysis.report.sections import Report
from analysis.report.texts import say
from analysis.report.verification import verify
from analysis.report.view import Picture, Table
from analysis.spreadsheet import cell, csv_bytes
from analysis.stats import results
from analysis.stats.results import Results, mark, write
from analysis.stats.summary import SUMMARY_SCHEMA
from analysis.suite import suite_folder
from analysis.suite.group import members
from analysis.suite.records import SuiteError
from analysis.tests.known import analysed, known
from analysis.tests.pages import Parsed, Shared, live_markup, pieces, text_of, without_own
from contract.command_results import AnswerLine
from contract.plan import digest
from controller.tests.command import Fde
from validation.synthetic.folder import write_manifest
from validation.synthetic.folder import write_manifest as seal
from validation.synthetic.suite import CONFIGURATIONS, PHASES, Options, write_group, write_suite


def pictures(page: Parsed) -> list[str]:
    return [
        unquote(ref.split(",", 1)[1])
        for ref in page.sources
        if ref.startswith("data:image/svg+xml,")
    ]


def test_the_page_needs_no_network(report_html: str, page: Parsed) -> None:
    assert page.sources
    assert all(ref.startswith(("#", "data:")) for ref in page.sources)
    assert not {"link", "iframe", "object"} & page.tags
    assert live_markup(report_html) == ""  # of scripts our own alone
    assert "default-src 'none'; img-src data:" in report_html
    styles = re.findall(r"<style>(.*?)</style>", report_html, re.DOTALL)
    assert styles
    assert not any(word in style for word in ("@import", "url(") for style in styles)
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|WebSocket", report_html)
    assert pictures(page)
    assert not any(re.search(r"(?:href|src)=['\"](?!#)|@import", svg) for svg in pictures(page))


def test_origin_reaches_every_row_and_figure(tmp_path: Path) -> None:
    for origin in ("measured", "modelled"):
        o = Options(blocks=2, origin=origin, interval_ms=100, workloads=("file_io", "video"))
        derived = analysed(tmp_path / origin, o)
        assert set(derived.energy["origin"]) == {origin}
        assert set(derived.summary["origin"]) == {origin}
        assert (say("mark.modelled") in text_of(Report(derived).facts())) == (origin == "modelled")
        drawn = pieces(Picture, Report(derived).page())
        titles = [picture.drawn.get_suptitle() for picture in drawn]
        assert len(titles) >= 5
        assert all(("modelled" in title) == (origin == "modelled") for title in titles)


def test_one_modelled_meter_beside_a_measured_counter(tmp_path: Path) -> None:
    write_suite(tmp_path / "s", Options(blocks=2, origin="measured", workloads=("idle",)))
    path = tmp_path / "s" / "meters" / "meter0" / "meter.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "origin": "modelled"}))
    derived = results.results(tmp_path / "s")
    by = dict(derived.energy.select("source", "origin").unique().iter_rows())
    assert by == {"rapl": "measured", "meter0": "modelled"}
    assert say("mark.modelled") in text_of(Report(derived).facts())


def test_summary_has_the_contracts_columns(derived: Results) -> None:
    summary = derived.summary
    assert summary.columns == list(SUMMARY_SCHEMA)
    assert len(summary) == len(PHASES) * len(CONFIGURATIONS) * 4
    plain = summary.filter(configuration="plain")
    assert set(plain["verdict"]) == {""}
    assert plain["ratio"].null_count() == len(plain)
    others = summary.filter(pl.col("configuration") != "plain")
    judged = others.filter(component="system")
    assert set(judged["verdict"]) <= {"differs", "equivalent", "inconclusive"}
    assert set(others.filter(pl.col("component") != "system")["verdict"]) == {""}
    video = others.filter(workload="video", component="system")
    assert "differs" not in set(video["verdict"])
    tree = others.filter(workload="kernel_tree", component="system")
    assert dict(tree.select("configuration", "verdict").iter_rows())["dmcrypt-aes256"] == "differs"


def costs(derived: Results) -> list[AnswerLine]:
    lines = first_page.lines(derived, derived.suite.folder)
    return [line for line in lines if line.question == "cost"]


def test_one_block_has_no_interval(tmp_path: Path) -> None:
    derived = analysed(tmp_path / "s", blocks=1, interval_ms=100, workloads=("kernel_tree",))
    (line,) = costs(derived)
    assert line.code == "unsettled"
    assert line.facts == {"configurations": list(CONFIGURATIONS[1:]), "blocks": 1}
    assert set(derived.summary["verdict"]) == {"", "inconclusive"}
    assert derived.summary["ci_low_j"].null_count() == len(derived.summary)


def test_verify_finds_changed_bytes_and_changed_figures(
    small_suite: Path, tmp_path: Path, fde: Fde
) -> None:
    folder = shutil.copytree(small_suite, tmp_path / "s")
    results.write(results.results(folder))
    assert verify(folder).problems == ()

    table = pl.read_parquet(folder / "energy.parquet")
    table.with_columns(pl.col("energy_j") * 1.000001).write_parquet(folder / "energy.parquet")
    assert "energy.parquet is not what" in verify(folder).problems[0]
    table.write_parquet(folder / "energy.parquet")

    # Decoded samples that do not follow from the stream, sealed all the same.
    path = folder / "meters" / "meter0" / "samples.parquet"
    honest = path.read_bytes()
    pl.read_parquet(path).with_columns(pl.col("power_w_system") * 0.9).write_parquet(path)
    seal(folder)
    results.write(results.results(folder))
    assert "does not follow from the raw bytes" in verify(folder).problems[0]
    path.write_bytes(honest)
    seal(folder)

    stream = folder / "meters" / "meter0" / "stream.raw"
    stream.write_bytes(stream.read_bytes() + b"\x00")
    (folder / "runs" / "stray.json").write_text("{}")
    problems = " ".join(verify(folder).problems)
    assert "stream.raw was changed after sealing" in problems
    assert "runs/stray.json was added after sealing" in problems
    (folder / "energy.parquet").write_bytes(b"PAR1")
    stderr = fde("verify", folder, status=1).err
    assert all(line.startswith("fde: ") for line in stderr.splitlines())
    assert "energy.parquet is not what the raw data give" in stderr


def test_a_run_without_its_closing_mark_is_void(small_suite: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(small_suite, tmp_path / "s")
    lines = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if '"finished"' in line)
    (folder / "journal.jsonl").write_text("".join(lines[:last]) + lines[last][:30])
    suite = suite_folder.read(folder)
    (void,) = suite.void
    assert void.run_id == json.loads(lines[last])["run_id"]
    assert "no closing mark" in void.reason
    assert void.run_id not in {run.run_id for run in suite.runs}
    assert any("journal.jsonl is cut short" in problem for problem in suite.problems)


ROOT = Path(__file__).parents[2]
SMALL = Options(blocks=2, interval_ms=500, configurations=("plain", "opal"), workloads=("idle",))
# As a name of a folder, which has no slash, and as text.
NAME = "$(touch pwned)`touch pwned`';touch pwned;'\";touch pwned;\" <img src=x onerror=alert(1)> #"
TEXT = (
    "</pre></td></style></title><script>alert(1)</script><img src=x onerror=alert(1)>"
    "\" onmouseover=\"alert(1)\" ' onclick='alert(1)' [a](javascript:alert(1)) $(touch pwned)"
    "\x1b]0;owned\x07\x1b[2J"
)
# Codes that must be as they are, or there is nothing to report on.
KEPT = {
    *("format", "sha256", "plan_sha256", "kind", "origin", "status", "run_id", "state", "zone"),
    *("source", "timing", "boot_id", "suite_id", "started_wall", "created_wall"),
    # Names, which are refused (test_an_invalid_name_is_refused).
    *("suite", "host", "name", "configuration", "workload", "disk", "encrypted_by", "looks"),
    *("first_outcome", "after_work", "access"),
}

BY_NAME = {"disks", "before", "after", "other_sources"}  # what has names for keys


def _poisoned(document: Any, key: str = "") -> Any:
    """Each text that is no code with markup behind it, and each unknown key besides."""
    if isinstance(document, dict):
        unknown = {} if key in BY_NAME else {TEXT: TEXT}
        return {k: _poisoned(v, k) for k, v in document.items()} | unknown
    if isinstance(document, list):
        return [_poisoned(entry, key) for entry in document]
    return document + TEXT if isinstance(document, str) and key not in KEPT else document


def _poison(folder: Path) -> None:
    plan = _poisoned(json.loads((folder / "plan.json").read_text(encoding="utf-8")))
    plan["sha256"] = digest(plan)
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    for path in (*folder.glob("runs/*/run.json"), *folder.glob("provenance/*.json")):
        document = _poisoned(json.loads(path.read_text(encoding="utf-8")))
        if path.name == "run.json":
            document["plan_sha256"] = plan["sha256"]
            document["phases"] = [{**p, "work": {TEXT: 1.0}} for p in document["phases"]]
            document["checks"] = [{"name": TEXT, "state": TEXT, "said": TEXT, "what": TEXT}]
        path.write_text(json.dumps(document), encoding="utf-8")
    for path in folder.glob("meters/*/meter.json"):
        meter = json.loads(path.read_text(encoding="utf-8"))
        meter["accuracy"]["source"] = TEXT
        path.write_text(json.dumps(meter), encoding="utf-8")
    lines = (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    lines_with_text = [json.loads(line) | {"detail": TEXT} for line in lines]
    lines_with_text[3] |= {"state": "void"}
    (folder / "journal.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines_with_text), encoding="utf-8"
    )
    write_manifest(folder)


@pytest.fixture
def poisoned(tmp_path: Path) -> Path:
    folder = tmp_path / NAME
    write_suite(folder, SMALL, seal=False)
    _poison(folder)
    return folder


def test_a_hostile_suite_gives_a_report_without_live_markup(
    poisoned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fde: Fde
) -> None:
    """From a folder of its own, in which what it starts would leave its mark."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    output = "".join(fde("report", poisoned))
    assert "\x1b" not in output and "\x07" not in output
    page = (poisoned / "report.html").read_text(encoding="utf-8")
    assert "alert(1)" in page  # it is there to be read
    assert live_markup(page) == ""
    assert live_markup(f"<p>{TEXT}</p>")  # which the search itself would find
    assert not list(tmp_path.rglob("pwned"))
    assert not list(work.iterdir())


@pytest.mark.parametrize("key", ["suite", "host"])
def test_an_invalid_name_is_refused(key: str, poisoned: Path, fde: Fde) -> None:
    path = poisoned / "plan.json"
    plan = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**plan, key: TEXT}), encoding="utf-8")
    refusal = fde("report", poisoned, status=1).err
    assert "is no valid plan" in refusal and "\x1b" not in refusal
    assert len(refusal.splitlines()) == 1


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_folder_that_leads_elsewhere_is_refused(
    kind: str, small_suite: Path, tmp_path: Path, fde: Fde
) -> None:
    folder, outside = shutil.copytree(small_suite, tmp_path / "suite"), tmp_path / "outside"
    outside.mkdir()
    make: dict[str, Callable[[], None]] = {
        "link": lambda: (folder / ".energy.parquet.part").symlink_to(outside / "x"),
        "folder": lambda: (folder / "meters" / "other").symlink_to(outside),
        "pipe": lambda: os.mkfifo(folder / "budget.csv"),
    }
    make[kind]()
    for command in ("report", "verify", "summary"):
        stderr = fde(command, folder, status=1).err
        assert stderr.startswith(f"fde: In {folder}, ") and len(stderr.splitlines()) == 1
    assert not list(outside.iterdir())


FORMULAS = ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "－1"]
TEXTS = ["", "-", "plain", "a=b", "1", " x", "'=1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_gets_an_apostrophe(text: str) -> None:
    assert cell(text) == f"'{text}"
    table = pl.DataFrame({"name": [text], "value": [-1.5]})
    assert pl.read_csv(csv_bytes(table)).rows() == [(f"'{text}", -1.5)]


@pytest.mark.parametrize("text", TEXTS)
def test_other_texts_and_numbers_stay(text: str) -> None:
    table = pl.DataFrame({"name": [text], "kind": pl.Series([text], dtype=pl.Categorical)})
    assert cell(text) == text and csv_bytes(table) == table.write_csv().encode()


def test_no_table_of_a_suite_has_a_formula(tmp_path: Path) -> None:
    folder = tmp_path / "synthetic-x-20260101T000000Z"
    accuracy = {"relative_limit": 0.03, "absolute_limit_w": 0.0, "source": "=HYPERLINK(A1)"}
    write_suite(
        folder, Options(blocks=2, interval_ms=100, workloads=("idle",), host="x", accuracy=accuracy)
    )
    build.build(folder)
    cells = [
        text
        for path in sorted(folder.glob("*.csv"))
        for row in csv.reader(path.read_text(encoding="utf-8").splitlines())
        for text in row
    ]
    assert "'=HYPERLINK(A1)" in cells
    assert not [text for text in cells if text.startswith(("=", "+", "@"))]


OPTIONS = Options(blocks=5, interval_ms=100, workloads=("kernel_grep", "sql", "idle"), noise=0.002)


@pytest.fixture(scope="module")
def folder(shared: Shared) -> Path:
    """Two hosts, on the second of which software costs more."""
    dearer = {"alder": 1.0, "birch": 1.6}
    return Path(shared("other-hosts", lambda root: write_group(root, dearer, OPTIONS))[1])


@pytest.fixture(scope="module")
def hosts(folder: Path) -> list[Results]:
    return [results.results(member) for member in members(folder)]


def test_each_host_has_a_line_with_the_figures_of_its_own_report(hosts: list[Results]) -> None:
    (table,) = pieces(Table, hosts_page.table(hosts))
    assert [row[0] for row in table.rows] == ["alder", "birch"]
    assert table.headers[1:-1] == tuple(
        hosts[0].suite.label(name) for name in ("opal", "dmcrypt-aes128", "dmcrypt-aes256")
    )
    for host, row in zip(hosts, table.rows, strict=True):
        for name, shown in zip(host.suite.configurations[1:], row[1:-1], strict=True):
            c = known(known(answer.contrast_of(host, host.suite.baseline, name)).comparison)
            assert shown == f"{words.change_in(c)} {words.sign(c)}"
        assert row[-1] == "5 of 5 blocks"


def test_a_configuration_that_one_host_lacks_leaves_its_cell_empty(hosts: list[Results]) -> None:
    plan = hosts[1].suite.plan
    fewer = tuple(entry for entry in plan.configurations if entry.name != "opal")
    declared = replace(plan.analysis, contrasts=())
    suite = replace(hosts[1].suite, plan=replace(plan, configurations=fewer, analysis=declared))
    lacking = Results(suite, hosts[1].clock, hosts[1].all_energy, ())
    (table,) = pieces(Table, hosts_page.table([hosts[0], lacking]))
    assert [row[1] == words.NOTHING for row in table.rows] == [False, True]


def stub(folder: Path) -> None:
    """Write a host's own report without its page."""
    derived = results.results(folder)
    write(derived)
    (folder / "report.html").write_text("its own", encoding="utf-8")
    mark(derived, "report.html")


def test_the_command_writes_one_page_that_leads_to_the_hosts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fde: Fde
) -> None:
    shutil.copytree(folder.parent, tmp_path / "hosts")
    group = tmp_path / "hosts" / folder.name
    monkeypatch.setattr(build, "build", stub)
    stdout = fde("report", group).out
    assert "modelled" in stdout and "alder" in stdout and "birch" in stdout
    page = without_own((group / "report.html").read_text(encoding="utf-8"))
    for word in ("NaN", "None", ">nan", "<script", "http://", "https://"):
        assert word not in re.sub(r'src="data:[^"]*"', "", page), word
    links = [unquote(link) for link in re.findall(r'href="(\.\.[^"]*)"', page)]
    assert len(links) == 2
    assert all((group / link).is_file() for link in links)
    rows = pl.read_csv(group / "hosts.csv")
    assert set(rows["host"]) == {"alder", "birch"}
    assert rows.height == sum(results.results(member).summary.height for member in members(group))
    before = {path: (path / "report.html").stat().st_mtime_ns for path in members(group)}
    fde("report", group)
    assert before == {path: (path / "report.html").stat().st_mtime_ns for path in members(group)}
    foreign = members(group)[0] / "report.html"
    foreign.write_text("<script>of a stranger</script>", encoding="utf-8")
    fde("report", group)
    assert foreign.read_text(encoding="utf-8") == "its own"
    stdout = fde("verify", group).out
    assert all(f"{path.name}:\n" in stdout for path in members(group))


def test_a_group_that_is_damaged_is_refused(tmp_path: Path) -> None:
    none = '{"format": "fde-group/1", "suites": []}'
    for text in ("{", '{"format": "fde-group/2", "suites": ["a"]}', "[]", none):
        (tmp_path / "group.json").write_text(text, encoding="utf-8")
        with pytest.raises(SuiteError, match=r"group.json"):
            members(tmp_path)
