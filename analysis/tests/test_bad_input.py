"""Damaged, cut and missing suites: one sentence, an exit status, no traceback, no bare NaN."""

from __future__ import annotations

import json
import random
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis import load
from analysis.energy.energy import energy_table
from analysis.report import build, first_page, render
from analysis.report.build import terminal
from analysis.stats.results import Results, results
from analysis.suite.records import Suite, SuiteError
from analysis.suite.suite_folder import read
from analysis.tests.pages import UNWANTED, Parsed, Shared, text_of
from controller.cli.app import main
from controller.tests.command import Fde
from validation.synthetic.folder import write_manifest
from validation.synthetic.suite import Options, write_suite

SMALL = Options(
    blocks=2, interval_ms=100, configurations=("plain", "opal"), workloads=("kernel_grep", "idle")
)
WRONG: tuple[Any, ...] = (None, "x", -1, [], {}, [1], float("inf"))


@pytest.fixture(scope="module")
def sound_suite(shared: Shared) -> Path:
    """Return a sound suite; copied before anything is done to it."""
    return shared("smaller", lambda folder: write_suite(folder, SMALL))[0]


@pytest.fixture
def suite(sound_suite: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound_suite, tmp_path / "suite"))


@contextmanager
def limited(most_kib: int) -> Iterator[None]:
    """No file can become larger; Python ignores the signal, so that a write fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_kib * 1024, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


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


def empty_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("plan.json", "manifest.json"):
            path.write_bytes(b"")


def drop_second_block(folder: Path) -> None:
    for path in folder.glob("runs/*-b01-*/run.json"):
        path.unlink()


def cut_journal(folder: Path) -> None:
    path = folder / "journal.jsonl"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def drop_runs_of(configuration: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for path in folder.glob(f"runs/*-{configuration}-*/run.json"):
            path.unlink()

    return change


def change_a_run(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = min((folder / "runs").iterdir()) / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def cut_stream(folder: Path) -> None:
    (folder / "meters/meter0/samples.parquet").unlink()
    path = folder / "meters/meter0/stream.raw"
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def no_parquet(folder: Path) -> None:
    (folder / "meters/meter0/samples.parquet").write_bytes(b"PAR1")
    (folder / "manifest.json").unlink()


def drop_meter(folder: Path) -> None:
    shutil.rmtree(folder / "meters")


def drop_rapl(folder: Path) -> None:
    for path in folder.glob("runs/*/run.json"):
        document = json.loads(path.read_text())
        for phase in document["phases"]:
            phase["counters"] = []
        path.write_text(json.dumps({**document, "other_sources": {}}))
        (path.parent / "rapl.jsonl").unlink()


def drop_both(folder: Path) -> None:
    drop_meter(folder)
    drop_rapl(folder)


def drop_file(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def plan_without(*keys: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        plan = json.loads((folder / "plan.json").read_text())
        shortened = {key: value for key, value in plan.items() if key not in keys}
        (folder / "plan.json").write_text(json.dumps(shortened))

    return change


USABLE: dict[str, tuple[Callable[[Path], None], *tuple[str, ...]]] = {
    "cut short": (cut_short, "never sealed"),
    "samples changed": (changed, "samples.parquet was changed after sealing"),
    "samples damaged": (damaged_unsealed, "never sealed"),
    "samples no Parquet": (no_parquet, "never sealed"),
    "nothing measured": (no_blocks, "No run finished"),
    "all files empty": (empty_files, "No run finished"),
    "one block": (drop_second_block, "Only one block finished"),
    "journal cut short": (cut_journal, "The suite did not come to its end"),
    "no journal": (drop_file("journal.jsonl"), "The journal is missing"),
    "no drive": (drop_runs_of("opal"), "Configuration opal has no finished run"),
    "no baseline": (drop_runs_of("plain"), "no run of plain finished"),
    "a void run": (change_a_run(status="void", void_reason="throttled"), "throttled"),
    "wrong proof": (change_a_run(proof={"ok": False}), "configuration was not the planned one"),
    "another plan's": (change_a_run(plan_sha256="0" * 64), "it was made by another plan"),
    "no meter": (
        drop_meter,
        "no meter saw the whole system",
        "There is no meter. RAPL counts processor and memory alone: none of its joules holds",
    ),
    "no counters": (drop_rapl, "finished runs"),
    "no source": (drop_both, "Unknown: "),
    "stream cut short": (cut_stream, "stream.raw was changed after sealing"),
    "no clock": (drop_file("clock.jsonl"), "no usable clock reading"),
    "no configurations": (plan_without("configurations"), "Nothing is compared: the plan has no"),
    "no workloads": (plan_without("workloads"), "Unknown: "),
    "no runs planned": (plan_without("runs"), "No run finished"),
    "no assumptions": (
        plan_without("analysis", "assumptions"),
        "The plan has no valid assumptions",
    ),
}


@pytest.mark.usefixtures("no_svg")
@pytest.mark.parametrize("case", USABLE)
def test_a_damaged_suite_is_reported_with_its_problems(
    suite: Path, case: str, fde: Fde, monkeypatch: pytest.MonkeyPatch
) -> None:
    derivations: list[Results] = []

    def record(folder: Path) -> Results:
        derivations.append(results(folder))
        return derivations[-1]

    monkeypatch.setattr(build, "results", record)
    breakage, *problems = USABLE[case]
    breakage(suite)
    outcome = fde("report", suite)
    page = Parsed((suite / "report.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert all(sentence in page.text for sentence in problems)
    for text in (outcome.out, page.text, (suite / "summary.csv").read_text(encoding="utf-8")):
        assert not UNWANTED.search(text)
    asked = [line.question for line in first_page.lines(derivations[0], suite)]
    questions = [question for question in dict.fromkeys(asked) if question != "battery"]
    assert questions == ["cost", "most", "payback", "trust", "next"]
    assert derivations[0].energy["energy_j"].is_nan().sum() == 0
    assert "panicked" not in outcome.err or breakage is damaged_unsealed
    assert not list(suite.glob(".*.new"))


def test_damaged_samples_change_no_joule_while_the_raw_bytes_are_whole(
    suite: Path, sound_suite: Path
) -> None:
    changed(suite)
    assert load(suite).equals(load(sound_suite))
    damaged_unsealed(suite)
    assert load(suite).equals(load(sound_suite))


@pytest.mark.parametrize("command", ["report", "verify", "summary", "compare"])
@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (None, "has no plan.json"),
        ("{", "cannot be read as JSON"),
        ("[]", "names no format"),
        ('{"format": "fde-plan/3", "suite_id": "../s"}', "is no valid plan"),
        ('{"format": "fde-plan/9"}', "use the version of the testbed that made it"),
    ],
)
def test_an_invalid_plan_is_refused(
    command: str, plan: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    if plan is not None:
        (folder / "plan.json").write_text(plan, encoding="utf-8")
    before = sorted(folder.iterdir())
    folders = [folder, folder] if command == "compare" else [folder]
    assert main([command, *map(str, folders)]) == 1
    stderr = capsys.readouterr().err
    assert stderr.startswith("fde: ") and message in stderr
    assert len(stderr.splitlines()) == 1 and not UNWANTED.search(stderr)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("most_kib", "name"), [(1, "energy.parquet"), (64, "report.html")], ids=["tables", "page"]
)
def test_a_full_disk_leaves_the_report_from_before(
    suite: Path, most_kib: int, name: str, fde: Fde
) -> None:
    for product in ("energy.parquet", "report.html"):
        (suite / product).write_text("from before", encoding="utf-8")
    with limited(most_kib):
        outcome = fde("report", suite, status=1)
    # Where standard output is a file, it is limited as well.
    assert outcome.err.splitlines()[0] == (
        f"fde: Cannot write {name}: File too large. What stood there before is as it was."
    )
    for product in ("report.html", *(["energy.parquet"] if most_kib == 1 else [])):
        assert (suite / product).read_text(encoding="utf-8") == "from before"
    assert not list(suite.glob(".*.new"))


def test_any_content_gives_an_answer_or_a_sentence(tmp_path: Path, thorough: bool) -> None:
    """A value of another kind at any place, some of them at random; then each file as a whole."""
    suite = tmp_path / "suite"
    write_suite(suite, replace(SMALL, workloads=("kernel_grep",), interval_ms=500))
    chance = random.Random(11)
    run = min((suite / "runs").iterdir())
    documents = [suite / "plan.json", run / "run.json", suite / "meters/meter0/meter.json"]
    cases = [(path, keys) for path in documents for keys in _keys(json.loads(path.read_text()))]
    for path, keys in chance.sample(cases, 60 if thorough else 20):
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
        intact = path.read_bytes()
        contents = (b"", intact[: len(intact) // 2], b"[]", b"null", b"\x00" * 50)
        for content in contents if thorough else chance.sample(contents, 2):
            path.write_bytes(content)
            _answers(suite)
        path.write_bytes(intact)


def _answers(suite: Path) -> None:
    try:
        derived = results(suite)
    except SuiteError as error:
        assert str(error).endswith(".")
        return
    assert not re.search(
        r"\bnan\b", text_of(terminal(derived, first_page.lines(derived, suite))), re.I
    )
    for frame in (derived.energy, derived.summary):
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


def test_a_suite_sealed_again_after_a_change_is_sound(suite: Path) -> None:
    """The seal is what tells a change; a file that is sealed as it stands is believed."""
    (suite / "timing.json").write_text("{}", encoding="utf-8")
    assert any("timing.json was changed" in problem for problem in results(suite).suite.problems)
    write_manifest(suite)
    assert results(suite).suite.problems == ()


@pytest.mark.usefixtures("no_svg")
@pytest.mark.parametrize("name", ["runs/a\0b", "runs/" + 300 * "x"])
def test_a_manifest_with_an_impossible_name_is_a_problem(suite: Path, name: str) -> None:
    manifest = json.loads((suite / "manifest.json").read_text())
    manifest["files"][name] = 64 * "0"
    (suite / "manifest.json").write_text(json.dumps(manifest))
    assert "by a name that no file can have" in " ".join(read(suite).problems)


def test_the_joules_are_computed_once_for_tables_page_and_terminal(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def counted(suite: Suite, *others: Any) -> object:
        calls.append(suite.folder)
        return energy_table(suite, *others)

    monkeypatch.setattr("analysis.stats.results.energy_table", counted)
    assert main(["report", str(suite)]) == 0
    assert calls == [suite]
    stdout = capsys.readouterr().out
    assert "Kernel grep" in stdout and "Modelled" in stdout
    derived = results(suite)
    assert render.text(terminal(derived, first_page.lines(derived, suite))) in stdout
    assert load(suite).equals(pl.read_parquet(suite / "energy.parquet"))
