"""The whole command on suites that are damaged, cut short or not there: a sentence, the right exit
status, nothing lost, never a traceback and never a bare NaN.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis import load
from analysis.__main__ import main
from analysis.report import render
from analysis.report.build import terminal
from analysis.stats.results import computed, results
from analysis.suite.records import SuiteError
from analysis.tests.pages import text_of
from validation.synthetic.folder import write_manifest
from validation.synthetic.suite import Options, write_suite

ROOT = Path(__file__).parents[2]
SMALL = Options(
    blocks=2, interval_ms=100, configurations=("plain", "opal"), workloads=("kernel_grep", "idle")
)
NOT_A_NUMBER = re.compile(r"\b(nan|NaN|None|null)\b|Traceback")
WRONG: tuple[Any, ...] = (None, "x", -1, [], {}, [1], float("inf"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound suite; copied before anything is done to it."""
    folder = tmp_path_factory.mktemp("suites") / "whole"
    write_suite(folder, SMALL)
    return folder


@pytest.fixture
def suite(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "suite"))


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """`python -m analysis …` in this process, and all that it writes."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        words = [str(argument) for argument in arguments]
        status = main(words)
        return subprocess.CompletedProcess(words, status, *capfd.readouterr())

    return run


def limited(suite: Path, most_kib: int) -> subprocess.CompletedProcess[str]:
    """`python -m analysis report` in a process whose files cannot become larger."""
    line = ["bash", "-c", f'ulimit -f {most_kib}; exec "$@"', "bash"]
    line += [sys.executable, "-m", "analysis", "report", str(suite)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def damaged(path: Path, place: int | None = None) -> None:
    """Bytes that are not those that were written, from `place` on or in the middle of the file."""
    content = bytearray(path.read_bytes())
    place = len(content) // 3 if place is None else place
    content[place : place + 200] = b"\xff" * 200
    path.write_bytes(content)


def cut_short(folder: Path) -> None:
    for name in ("journal.jsonl", "clock.jsonl", "meters/meter0/stream.raw"):
        path = folder / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    (folder / "meters/meter0/samples.parquet").unlink()
    (folder / "manifest.json").unlink()


def changed(folder: Path) -> None:
    damaged(folder / "meters/meter0/samples.parquet")


def damaged_unsealed(folder: Path) -> None:
    damaged(folder / "meters/meter0/samples.parquet")
    (folder / "manifest.json").unlink()


def no_blocks(folder: Path) -> None:
    for name in ("runs", "meters"):
        shutil.rmtree(folder / name)
    (folder / "journal.jsonl").write_text("", encoding="utf-8")


def one_configuration(folder: Path) -> None:
    for run in (folder / "runs").glob("*opal*"):
        shutil.rmtree(run)


def empty_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("plan.json", "manifest.json"):
            path.write_bytes(b"")


USABLE: list[tuple[Callable[[Path], None], str]] = [
    (cut_short, "never sealed"),
    (changed, "The raw bytes of meter meter0 were decoded again instead"),
    (damaged_unsealed, "from the raw bytes instead"),
    (no_blocks, "No run finished"),
    (one_configuration, "Configuration opal has no finished run"),
    (empty_files, "No run finished"),
]


@pytest.mark.parametrize(("breakage", "said"), USABLE, ids=[case[0].__name__ for case in USABLE])
def test_what_can_be_said_is_reported(
    suite: Path, breakage: Callable[[Path], None], said: str, command: Command
) -> None:
    breakage(suite)
    done = command("report", suite)
    assert done.returncode == 0, done.stderr
    assert said in " ".join(done.stdout.split())
    page = re.sub(r"<style>.*?</style>|src=\"[^\"]*\"|<pre>.*?</pre>", "", _page(suite), flags=re.S)
    visible = re.sub(r"<[^>]*>", " ", page)
    for text in (done.stdout, visible, (suite / "summary.csv").read_text(encoding="utf-8")):
        assert not NOT_A_NUMBER.search(text)
    assert "panicked" not in done.stderr or breakage is damaged_unsealed
    assert not list(suite.glob(".*.part"))


def test_damaged_samples_change_no_joule_while_the_raw_bytes_are_whole(
    suite: Path, whole: Path
) -> None:
    changed(suite)
    assert load(suite).equals(load(whole))
    damaged_unsealed(suite)
    assert load(suite).equals(load(whole))


def test_damage_that_polars_panics_at_is_a_sentence_too(tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    write_suite(folder, replace(SMALL, interval_ms=500), seal=False)
    sound = load(folder)
    path = folder / "meters/meter0/samples.parquet"
    honest = path.read_bytes()
    for place in range(600, 1600):
        path.write_bytes(honest)
        damaged(path, place)
        try:
            pl.scan_parquet(path).select("t_mono_ns", "window_s", "flags").slice(0, 9999).collect()
        except pl.exceptions.PanicException:
            break
        except pl.exceptions.PolarsError:
            continue
    else:
        pytest.skip("this Polars does not panic at any of these places")
    found = results(folder)
    assert found.energy.equals(sound)
    assert any("from the raw bytes instead" in said for said in found.suite.problems)


@pytest.mark.parametrize("what", ["report", "verify", "compare", "trace"])
@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (None, "has no plan.json"),
        ("", "cannot be read as JSON"),
        ('{"format": "fde-plan/9"}', "use the version of the testbed that made it"),
    ],
)
def test_what_is_no_suite_is_refused(
    what: str,
    plan: str | None,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    if plan is not None:
        (folder / "plan.json").write_text(plan, encoding="utf-8")
    before = sorted(folder.iterdir())
    folders = [folder, folder] if what == "compare" else [folder]
    assert main([what, *map(str, folders)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("fde: ") and said in told
    assert len(told.splitlines()) == 1 and not NOT_A_NUMBER.search(told)
    assert sorted(folder.iterdir()) == before


def test_verify_tells_a_damaged_suite_from_a_sound_one(suite: Path, command: Command) -> None:
    assert command("report", suite).returncode == 0
    assert command("verify", suite).returncode == 0
    changed(suite)
    done = command("verify", suite)
    assert done.returncode == 1
    assert done.stderr.strip() == "fde: meters/meter0/samples.parquet was changed after sealing."
    damaged(suite / "energy.parquet")
    (suite / "meters/meter0/stream.raw").write_bytes(b"")
    done = command("verify", suite)
    assert done.returncode == 1
    assert all(line.startswith("fde: ") for line in done.stderr.splitlines())
    assert "stream.raw was changed after sealing" in done.stderr


@pytest.mark.parametrize(
    ("most_kib", "name"), [(1, "energy.parquet"), (64, "report.html")], ids=["tables", "page"]
)
def test_a_full_disk_leaves_the_report_from_before(suite: Path, most_kib: int, name: str) -> None:
    for kept in ("energy.parquet", "report.html"):
        (suite / kept).write_text("from before", encoding="utf-8")
    done = limited(suite, most_kib)
    assert done.returncode == 1
    assert done.stderr == (
        f"fde: Cannot write {name}: File too large. What stood there before is as it was.\n"
    )
    for kept in ("report.html", *(["energy.parquet"] if most_kib == 1 else [])):
        assert (suite / kept).read_text(encoding="utf-8") == "from before"
    assert not list(suite.glob(".*.part"))


def test_whatever_stands_in_a_file_there_is_an_answer_or_a_sentence(suite: Path) -> None:
    """A value of another kind at any place, some of them at random; then each file as a whole."""
    chance = random.Random(11)
    run = min((suite / "runs").iterdir())
    documents = [suite / "plan.json", run / "run.json", suite / "meters/meter0/meter.json"]
    cases = [(path, keys) for path in documents for keys in _keys(json.loads(path.read_text()))]
    for path, keys in chance.sample(cases, 40):
        honest = path.read_text(encoding="utf-8")
        document = json.loads(honest)
        inner = document
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = chance.choice(WRONG)
        path.write_text(json.dumps(document), encoding="utf-8")
        _answers(suite)
        path.write_text(honest, encoding="utf-8")
    others = ["journal.jsonl", "clock.jsonl", "manifest.json", "timing.json"]
    others += ["provenance/before.json", "meters/meter0/stream.raw"]
    for path in (*documents, *(suite / name for name in others)):
        whole = path.read_bytes()
        for content in (b"", whole[: len(whole) // 2], b"[]", b"null", b"\x00" * 50):
            path.write_bytes(content)
            _answers(suite)
        path.write_bytes(whole)


def _answers(suite: Path) -> None:
    try:
        found = results(suite)
    except SuiteError as error:
        assert str(error).endswith(".")
        return
    assert not re.search(r"\bnan\b", text_of(terminal(found)), re.I)
    for frame in (found.energy, found.summary):
        floats = frame.select(pl.col(pl.Float64))
        assert not any(floats.select(pl.all().is_nan().any()).row(0) if len(frame) else ())


def _keys(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values stand in a document; of a list, those of its first entry."""
    for key, value in document.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _keys(value, (*above, key))
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield from _keys(value[0], (*above, key, 0))


def _page(suite: Path) -> str:
    return (suite / "report.html").read_text(encoding="utf-8")


def test_a_suite_sealed_anew_after_a_change_is_sound(suite: Path) -> None:
    """The seal is what tells a change; a file that is sealed as it stands is believed."""
    (suite / "timing.json").write_text("{}", encoding="utf-8")
    assert any("timing.json was changed" in said for said in results(suite).suite.problems)
    write_manifest(suite)
    assert results(suite).suite.problems == ()


def test_the_joules_are_computed_once_for_tables_page_and_terminal(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def counted(folder: Path, raw: bool = False) -> object:
        calls.append(folder)
        return computed(folder, raw)

    monkeypatch.setattr("analysis.stats.results.computed", counted)
    assert main(["report", str(suite)]) == 0
    assert calls == [suite]
    said = capsys.readouterr().out
    assert "Kernel grep" in said and "MODELLED" in said
    assert render.text(terminal(results(suite))) in said
    assert load(suite).equals(pl.read_parquet(suite / "energy.parquet"))
