from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from analysis.__main__ import main
from analysis.report import answer, tables
from analysis.report.figures import forest
from analysis.report.figures.bars import PLOTS, draw, plots_of
from analysis.report.sections import Report
from analysis.stats import results
from analysis.stats.summary import SUMMARY_SCHEMA
from analysis.suite import suite_folder
from analysis.suite.records import SuiteError
from analysis.tests.pages import text_of
from validation.synthetic.folder import write_manifest as seal
from validation.synthetic.suite import CONFIGURATIONS, PHASES, Options, Truth, write_suite

NOT_A_NUMBER = re.compile(r"(?<![A-Za-z])(nan|NaN|inf|None)(?![A-Za-z])")


class Page(HTMLParser):
    """Text, tables' captions, references and pictures of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.references: list[str] = []
        self.alternatives: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "srcset", "data", "action", "poster"}:
                self.references.append(value or "")
            if name == "alt":
                self.alternatives.append(value or "")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def pictures(page: Page) -> list[str]:
    return [
        base64.b64decode(ref.split(",", 1)[1]).decode()
        for ref in page.references
        if ref.startswith("data:image/svg+xml;base64,")
    ]


@pytest.fixture(scope="module")
def page(whole_suite: tuple[Path, Truth], tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The real thing: the command and the templates."""
    folder = tmp_path_factory.mktemp("report") / "suite"
    shutil.copytree(whole_suite[0], folder)
    assert main(["report", str(folder)]) == 0
    assert main(["verify", str(folder)]) == 0
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_the_page_needs_no_network(page: Page) -> None:
    assert page.references
    assert all(ref.startswith(("#", "data:")) for ref in page.references)
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    style = " ".join(page.words)
    assert "@import" not in style
    assert "url(" not in style
    assert not any(re.search(r'(?:href|src)="(?!#)', svg) for svg in pictures(page))


def test_every_configuration_and_workload_is_there_and_no_nan(page: Page) -> None:
    for name in ("plain", "Opal drive", "dm-crypt AES-128", "dm-crypt AES-256"):
        assert name in page.text
    for name in ("File write and read", "Kernel tree", "Kernel grep", "SQL", "Video", "Idle"):
        assert name in page.text
    assert not NOT_A_NUMBER.search(page.text)
    by_workload = sum(len(plots_of(name)) + 2 for name in PHASES)  # over time, and over the blocks
    assert len(pictures(page)) == 1 + by_workload + 2  # the ratios; the payback's two
    assert all(page.alternatives)


def test_each_component_is_split_into_time_and_power(page: Page) -> None:
    _, _, rest = page.text.partition("SQL: difference to plain in each component's energy a run")
    table = rest.split("What makes it", 1)[1].split("What the machine at rest", 1)[0]
    for component in ("drive", "CPU package", "RAM"):
        assert component in table
    assert table.count("Opal drive") == 3


def test_the_modelled_word_stands_at_the_top_and_on_every_figure(page: Page) -> None:
    assert answer.BANNER in page.text
    assert page.text.index(answer.BANNER) < page.text.index("The answer")
    report_tags = page.text.count(" modelled ")
    assert report_tags >= len(pictures(page))


def test_origin_reaches_every_row_and_figure(tmp_path: Path) -> None:
    for origin in ("measured", "modelled"):
        o = Options(blocks=2, origin=origin, interval_ms=100, workloads=("file_io", "video"))
        write_suite(tmp_path / origin, o)
        found = results.results(tmp_path / origin)
        assert set(found.energy["origin"]) == {origin}
        assert set(found.summary["origin"]) == {origin}
        assert (answer.BANNER in text_of(Report(found).page())) == (origin == "modelled")
        drawn = [draw(plot, found.energy, found.suite) for plot in PLOTS]
        titles = [f.get_suptitle() for f in drawn if f is not None]
        ratios = forest.draw(found.summary, found.suite, "system")
        titles += [ratio.get_suptitle() for ratio in ratios]
        assert len(titles) == 5
        assert all(("modelled" in title) == (origin == "modelled") for title in titles)


def test_one_modelled_meter_beside_a_measured_counter(tmp_path: Path) -> None:
    write_suite(tmp_path / "s", Options(blocks=2, origin="measured", workloads=("idle",)))
    path = tmp_path / "s" / "meters" / "meter0" / "meter.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "origin": "modelled"}))
    found = results.results(tmp_path / "s")
    by = dict(found.energy.select("source", "origin").unique().iter_rows())
    assert by == {"rapl": "measured", "meter0": "modelled"}
    assert answer.BANNER in text_of(Report(found).head())


def test_summary_has_the_contracts_columns(whole_suite: tuple[Path, Truth]) -> None:
    summary = results.results(whole_suite[0]).summary
    assert summary.columns == list(SUMMARY_SCHEMA)
    assert len(summary) == len(PHASES) * len(CONFIGURATIONS) * 4
    plain = summary.filter(pl.col("configuration") == "plain")
    assert set(plain["verdict"]) == {""}
    assert plain["ratio"].null_count() == len(plain)
    others = summary.filter(pl.col("configuration") != "plain")
    assert set(others["verdict"]) <= {"differs", "equivalent", "inconclusive"}
    video = others.filter((pl.col("workload") == "video") & (pl.col("component") == "system"))
    assert "differs" not in set(video["verdict"])
    tree = others.filter((pl.col("workload") == "kernel_tree") & (pl.col("component") == "system"))
    assert dict(tree.select("configuration", "verdict").iter_rows())["dmcrypt-aes256"] == "differs"


def test_answer_has_three_sentences_and_is_printed(
    whole_suite: tuple[Path, Truth], capsys: pytest.CaptureFixture[str]
) -> None:
    found = results.results(whole_suite[0])
    said = answer.sentences(found)
    assert len(said) == 3
    assert "Opal" in said[0]
    assert "dm-crypt AES-128" in said[1]
    assert "are repaid after" in said[2]
    text = tables.headline(found).text
    assert len(text.splitlines()) == 2 + len(PHASES) * len(CONFIGURATIONS)
    assert capsys.readouterr().out == ""


def break_nothing(folder: Path) -> None:
    """Leave the suite as it is."""


def cut_journal(folder: Path) -> None:
    data = (folder / "journal.jsonl").read_bytes()
    (folder / "journal.jsonl").write_bytes(data[: len(data) // 2])


def drop_opal(folder: Path) -> None:
    for run in (folder / "runs").glob("*-opal-*"):
        (run / "run.json").unlink()


def void_one(folder: Path) -> None:
    path = sorted((folder / "runs").iterdir())[0] / "run.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "status": "void", "void_reason": "throttled"}))


def wrong_proof(folder: Path) -> None:
    path = sorted((folder / "runs").iterdir())[0] / "run.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "proof": {"ok": False}}))


def other_plan(folder: Path) -> None:
    path = sorted((folder / "runs").iterdir())[0] / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "plan_sha256": "0" * 64}))


def drop_meter(folder: Path) -> None:
    shutil.rmtree(folder / "meters")


def cut_stream(folder: Path) -> None:
    (folder / "meters" / "meter0" / "samples.parquet").unlink()
    path = folder / "meters" / "meter0" / "stream.raw"
    path.write_bytes(path.read_bytes()[:-40_001])


def garble_samples(folder: Path) -> None:
    (folder / "meters" / "meter0" / "samples.parquet").write_bytes(b"PAR1")


def drop_clock(folder: Path) -> None:
    (folder / "clock.jsonl").unlink()


def drop_runs(folder: Path) -> None:
    shutil.rmtree(folder / "runs")


def drop_journal(folder: Path) -> None:
    (folder / "journal.jsonl").unlink()


def drop_assumptions(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    del plan["assumptions"], plan["analysis"]
    (folder / "plan.json").write_text(json.dumps(plan))


def drop_seal(folder: Path) -> None:
    (folder / "manifest.json").unlink()


BROKEN: list[tuple[Callable[[Path], None], int, str]] = [
    (break_nothing, 1, "Only one block finished"),
    (cut_journal, 3, "The suite did not come to its end"),
    (drop_opal, 3, "Configuration opal has no finished run"),
    (void_one, 3, "throttled"),
    (wrong_proof, 3, "the configuration was not the planned one"),
    (other_plan, 3, "it was made by another plan"),
    (drop_meter, 3, "There is no meter"),
    (cut_stream, 3, "stream.raw was changed after sealing"),
    (garble_samples, 3, "were decoded again instead"),
    (drop_clock, 3, "no usable clock reading"),
    (drop_runs, 3, "No run finished"),
    (drop_journal, 3, "The journal is missing"),
    (drop_assumptions, 3, "The plan lacks its assumptions"),
    (drop_seal, 3, "never sealed"),
]


@pytest.mark.parametrize(
    ("breakage", "blocks", "said"), BROKEN, ids=[case[0].__name__ for case in BROKEN]
)
def test_a_broken_suite_is_told_in_sentences(
    tmp_path: Path, breakage: Callable[[Path], None], blocks: int, said: str
) -> None:
    o = Options(blocks=blocks, interval_ms=100, workloads=("kernel_tree", "idle"))
    write_suite(tmp_path / "s", o)
    breakage(tmp_path / "s")
    found = results.results(tmp_path / "s")
    text = text_of(Report(found).page())
    assert said in text
    assert not NOT_A_NUMBER.search(text)
    assert not NOT_A_NUMBER.search(tables.headline(found).text)
    assert len(answer.sentences(found)) == 3
    assert found.energy["energy_j"].is_nan().sum() == 0


def test_answer_tells_over_which_workloads_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write_suite(folder, Options(blocks=2, interval_ms=100, workloads=("sql", "video", "idle")))
    for run in (folder / "runs").glob("*-opal-sql"):
        (run / "run.json").write_text("{")
    said = answer.sentences(results.results(folder))
    assert "over 1 of 2 workloads and 2 blocks" in said[0]
    assert "over 2 workloads and 2 blocks" in said[1]


def test_one_block_says_that_it_has_no_interval(tmp_path: Path) -> None:
    write_suite(tmp_path / "s", Options(blocks=1, interval_ms=100, workloads=("kernel_tree",)))
    found = results.results(tmp_path / "s")
    assert all("n = 1: no interval" in sentence for sentence in answer.sentences(found))
    assert set(found.summary["verdict"]) == {"", "inconclusive"}
    assert found.summary["ci_low_j"].null_count() == len(found.summary)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "has no plan.json"),
        ("{", "cannot be read as JSON"),
        ('{"format": "fde-plan/9"}', "fde-plan/9"),
        ("[]", "has the format None"),
    ],
)
def test_what_is_no_suite_is_refused(
    tmp_path: Path, content: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    with pytest.raises(SuiteError, match=re.escape(said)):
        suite_folder.read(tmp_path)
    assert main(["report", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("fde: ")
    assert main(["report", str(tmp_path / "nowhere")]) == 1
    assert not (tmp_path / "energy.parquet").exists()


def test_verify_finds_changed_bytes_and_changed_figures(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write_suite(folder, Options(blocks=2, interval_ms=100, workloads=("idle",)))
    results.write(results.results(folder))
    assert results.verify(folder).problems == ()

    table = pl.read_parquet(folder / "energy.parquet")
    table.with_columns(pl.col("energy_j") * 1.000001).write_parquet(folder / "energy.parquet")
    assert "energy_j differs" in results.verify(folder).problems[0]
    table.write_parquet(folder / "energy.parquet")

    # Decoded samples that do not follow from the stream, sealed all the same.
    path = folder / "meters" / "meter0" / "samples.parquet"
    honest = path.read_bytes()
    pl.read_parquet(path).with_columns(pl.col("power_w_system") * 0.9).write_parquet(path)
    seal(folder)
    results.write(results.results(folder))
    assert "does not follow from the raw bytes" in results.verify(folder).problems[0]
    path.write_bytes(honest)
    seal(folder)

    stream = folder / "meters" / "meter0" / "stream.raw"
    stream.write_bytes(stream.read_bytes() + b"\x00")
    (folder / "runs" / "stray.json").write_text("{}")
    problems = " ".join(results.verify(folder).problems)
    assert "stream.raw was changed after sealing" in problems
    assert "runs/stray.json was added after sealing" in problems
    assert main(["verify", str(folder)]) == 1


def test_a_run_without_its_closing_mark_is_void(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write_suite(folder, Options(blocks=2, interval_ms=100, workloads=("idle",)))
    lines = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if '"finished"' in line)
    (folder / "journal.jsonl").write_text("".join(lines[:last]) + lines[last][:30])
    suite = suite_folder.read(folder)
    (void,) = suite.void
    assert void.run_id == json.loads(lines[last])["run_id"]
    assert "no closing mark" in void.reason
    assert void.run_id not in {run.run_id for run in suite.runs}
    assert any("journal.jsonl is cut short" in problem for problem in suite.problems)
