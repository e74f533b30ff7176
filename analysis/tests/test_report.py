from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path

import polars as pl

from analysis.report import first_page
from analysis.report.figures import forest
from analysis.report.figures.bars import PLOTS, draw
from analysis.report.sections import Report
from analysis.report.texts import say
from analysis.report.verification import verify
from analysis.stats import results
from analysis.stats.results import Results
from analysis.stats.summary import SUMMARY_SCHEMA
from analysis.suite import suite_folder
from analysis.tests.known import analysed
from analysis.tests.pages import Parsed, live_markup, text_of
from contract.command_results import AnswerLine
from controller.tests.command import Fde
from validation.synthetic.folder import write_manifest as seal
from validation.synthetic.suite import CONFIGURATIONS, PHASES, Options, write_suite


def pictures(page: Parsed) -> list[str]:
    return [
        base64.b64decode(ref.split(",", 1)[1]).decode()
        for ref in page.sources
        if ref.startswith("data:image/svg+xml;base64,")
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
    assert not any(re.search(r'(?:href|src)="(?!#)', svg) for svg in pictures(page))


def test_origin_reaches_every_row_and_figure(tmp_path: Path) -> None:
    for origin in ("measured", "modelled"):
        o = Options(blocks=2, origin=origin, interval_ms=100, workloads=("file_io", "video"))
        derived = analysed(tmp_path / origin, o)
        assert set(derived.energy["origin"]) == {origin}
        assert set(derived.summary["origin"]) == {origin}
        assert (say("banner.modelled") in text_of(Report(derived).head())) == (origin == "modelled")
        drawn = [draw(plot, derived.energy, derived.suite) for plot in PLOTS]
        titles = [f.get_suptitle() for f in drawn if f is not None]
        ratios = forest.draw(derived.family.versus, derived.suite, "system", derived.origin)
        titles += [ratio.get_suptitle() for ratio in ratios]
        assert len(titles) == 5
        assert all(("modelled" in title) == (origin == "modelled") for title in titles)


def test_one_modelled_meter_beside_a_measured_counter(tmp_path: Path) -> None:
    write_suite(tmp_path / "s", Options(blocks=2, origin="measured", workloads=("idle",)))
    path = tmp_path / "s" / "meters" / "meter0" / "meter.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "origin": "modelled"}))
    derived = results.results(tmp_path / "s")
    by = dict(derived.energy.select("source", "origin").unique().iter_rows())
    assert by == {"rapl": "measured", "meter0": "modelled"}
    assert say("banner.modelled") in text_of(Report(derived).head())


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


def test_answer_tells_over_which_workloads_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write_suite(folder, Options(blocks=2, interval_ms=100, workloads=("sql", "video", "idle")))
    for run in (folder / "runs").glob("*-opal-sql"):
        (run / "run.json").write_text("{")
    reasons = [line.reason for line in costs(results.results(folder))]
    assert sum("1 of 2 workloads" in reason for reason in reasons) == 1


def test_one_block_says_that_it_has_no_interval(tmp_path: Path) -> None:
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
