"""Whether figures follow from the sealed files, and tables of many suites."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis import load
from analysis.energy.energy import ENERGY_SCHEMA
from analysis.report.verification import verify
from analysis.stats import alike
from analysis.stats.results import results, write
from analysis.suite import manifest
from analysis.suite.manifest import check_journal
from analysis.tests.known import analysed
from analysis.tests.pages import Shared
from contract import derived
from contract.files import sha256_of
from contract.places import ROOT
from contract.tests.refusal import Refusal, refuses
from validation.synthetic.folder import dump, write_lines, write_manifest
from validation.synthetic.suite import Options, write_suite

Lines = list[dict[str, Any]]
SMALL = Options(blocks=2, interval_ms=100, configurations=("plain", "opal"), workloads=("idle",))


def numbered(lines: Lines) -> Lines:
    """Return the lines as if they had been written so."""
    return [{**line, "seq": seq} for seq, line in enumerate(lines)]


def journal(folder: Path) -> Lines:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(analysed(tmp_path / "s", SMALL))
    return tmp_path / "s"


def first(folder: Path) -> Path:
    return sorted((folder / "runs").iterdir())[0]


def other_run_json(folder: Path) -> None:
    path = first(folder) / "run.json"
    document = json.loads(path.read_text())
    dump(path, {**document, "checks": [{"name": "new", "ok": True}]})


def other_samples(folder: Path) -> None:
    with (first(folder) / "rapl.jsonl").open("a") as samples:
        samples.write('{"zone": "dram", "t_before_ns": 1, "error": "late"}\n')


def no_samples(folder: Path) -> None:
    (first(folder) / "rapl.jsonl").unlink()


def other_boot(folder: Path) -> None:
    lines = journal(folder)
    for line in lines:
        if line["state"] == "running" and line["run_id"] == first(folder).name:
            line["boot_id"] = "another"
    write_lines(folder / "journal.jsonl", lines)


def test_complete_runs_are_confirmed_with_their_number(folder: Path) -> None:
    outcome = verify(folder)
    assert outcome.problems == ()
    assert "4 finished runs have the sums that the journal closed them with" in outcome.confirmed[1]


def test_an_earlier_try_in_another_boot_is_no_problem(folder: Path) -> None:
    lines = journal(folder)
    begun = next(i for i, line in enumerate(lines) if line["state"] == "running")
    cut = {**lines[begun], "boot_id": "another"}
    void = {**cut, "state": "void", "cause": "target-down"}
    before = [{**line, "boot_id": "another"} for line in lines[:begun]]
    write_lines(folder / "journal.jsonl", numbered([*before, cut, void, *lines[begun:]]))
    write_manifest(folder)
    write(results(folder))
    assert verify(folder).problems == ()


@pytest.mark.parametrize("state", ["void", "running", ""])
def test_a_run_that_the_journal_leaves_unfinished_is_not_counted(folder: Path, state: str) -> None:
    """Whatever reads the suite: its figures name no run but those that are closed."""
    name = first(folder).name
    lines = [line for line in journal(folder) if state or line["run_id"] != name]
    if state:
        cause = "failed" if state == "void" else ""
        lines.insert(-1, {**lines[-2], "state": state, "run_id": name, "cause": cause})
    write_lines(folder / "journal.jsonl", numbered(lines))
    counted = {path.name for path in (folder / "runs").iterdir()}
    *cut, problem = check_journal(folder, counted).problems
    assert problem.startswith(f"Run {name} is counted, but the journal leaves it at")
    assert len(cut) == (state != "void")
    stored = pl.read_parquet(folder / "energy.parquet")
    assert name in set(stored["run_id"])  # of before: so the old table does not pass either
    write_manifest(folder)
    problems = " ".join(verify(folder).problems)
    assert re.search(r"energy\.parquet\b.* not what the raw data give", problems)
    assert name not in {run.run_id for run in results(folder).suite.runs}


def without_end(lines: Lines) -> Lines:
    return lines[:-1]


def without_middle(lines: Lines) -> Lines:
    return [*lines[:3], *lines[4:]]


def swapped(lines: Lines) -> Lines:
    return [*lines[:2], lines[3], lines[2], *lines[4:]]


def boots_mixed(lines: Lines) -> Lines:
    return [{**line, "boot_id": "ab"[i == 4]} for i, line in enumerate(lines)]


def other_place(lines: Lines) -> Lines:
    """Return the lines of the first run at the end, with times that fit there."""
    run, others = lines[1:4], [lines[0], *lines[4:-1]]
    moved = [{**line, "t_mono_ns": others[-1]["t_mono_ns"]} for line in run]
    return [*others, *moved, {**lines[-1], "t_mono_ns": others[-1]["t_mono_ns"]}]


@pytest.mark.parametrize("again", [False, True], ids=["as-it-was", "numbered-again"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_end, "has no closing line"),
        (without_middle, "not numbered one by one|leaves it at"),
        (swapped, "not numbered one by one|run backwards"),
        (boots_mixed, "run backwards"),
        (other_place, "not numbered one by one|was not measured between its lines"),
    ],
)
def test_a_journal_that_was_cut_or_reordered_is_found(
    folder: Path, change: Callable[[Lines], Lines], message: str, again: bool
) -> None:
    lines = change(journal(folder))
    write_lines(folder / "journal.jsonl", numbered(lines) if again else lines)
    write_manifest(folder)
    write(results(folder))
    assert re.search(message, " ".join(verify(folder).problems))


def void_try(folder: Path) -> None:
    (folder / "runs" / f"{first(folder).name}.void-1").mkdir()


def unknown_run(folder: Path) -> None:
    (folder / "runs" / "0099-b09-plain-idle").mkdir()


def lost_run_json(folder: Path) -> None:
    (first(folder) / "run.json").unlink()


def kept_file(folder: Path) -> None:
    path = first(folder) / "run.json"
    dump(path, {**json.loads(path.read_text()), "kept": {}})
    dump(path.parent / "kept" / "other.json", {})
    lines = journal(folder)
    sha256 = sha256_of(path)
    facts = [line["facts"] for line in lines if line["run_id"] == first(folder).name]
    facts[-1]["sha256"] = sha256
    write_lines(folder / "journal.jsonl", lines)


def other_plan(folder: Path) -> None:
    document = json.loads((folder / "plan.json").read_text())
    dump(folder / "plan.json", {**document, "tail_s": 99})


def other_steady_state(folder: Path) -> None:
    *lines, last = journal(folder)
    facts = {"disk": "plain", "sha256": "0" * 64}
    line = {**last, "state": "preconditioned", "facts": facts}
    dump(folder / "precondition" / "plain.json", {})
    write_lines(folder / "journal.jsonl", numbered([*lines, line, last]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (other_run_json, "run.json of {run} is not the one that the journal closed"),
        (other_samples, "rapl.jsonl of {run} is not the one that its run.json names"),
        (no_samples, "rapl.jsonl of {run} is not the one that its run.json names"),
        (other_boot, "{run} did not begin and finish in one boot"),
        (void_try, "{run} has 1 void tries, the journal has 0"),
        (unknown_run, "does not name runs/0099-b09-plain-idle"),
        (lost_run_json, "{run} finished, but its run.json cannot be read"),
        (kept_file, "The files in kept of {run} are not those that its run.json names"),
        (other_plan, "plan.json is not what was frozen"),
        (other_steady_state, "precondition/plain.json is not the one"),
    ],
)
def test_damage_before_sealing_is_found(
    folder: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(folder)
    write_manifest(folder)
    write(results(folder))
    assert message.format(run=first(folder).name) in " ".join(verify(folder).problems)


def test_samples_that_do_not_follow_from_the_raw_bytes_are_found_and_not_used(folder: Path) -> None:
    """Whatever seal and sums a stranger makes for them."""
    path = folder / "meters/meter0/samples.parquet"
    honest = load(folder)
    wrong = pl.read_parquet(path).with_columns(pl.col("power_w_system") * 2)
    wrong.write_parquet(path)
    write_manifest(folder)
    assert load(folder).drop("suite_id").equals(honest.drop("suite_id"))
    (problem,) = verify(folder).problems
    assert problem.startswith("meters/meter0/samples.parquet does not follow from the raw bytes")
    write(results(folder))
    path.write_bytes(b"PAR1")
    write_manifest(folder)
    assert "cannot be compared" in verify(folder).problems[0]
    assert load(folder).equals(honest)


PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
THREE_BLOCKS = Options(blocks=3, interval_ms=100, workloads=("file_io", "kernel_grep"))


@pytest.fixture(scope="module")
def suites(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/suites with two suites on two hosts, of which only the first has its report's tables."""

    def make(root: Path) -> None:
        for name, host in (("first", "bench"), ("second", "other")):
            write_suite(root / "data" / "suites" / name, replace(THREE_BLOCKS, host=host))
        write(results(root / "data" / "suites" / "first"))

    root = tmp_path_factory.mktemp("tidy") / "root"  # some tests change it for a while
    return shutil.copytree(shared("tidy", make)[0], root) / "data" / "suites"


def test_one_suite_is_its_energy_table(suites: Path) -> None:
    table = load(suites / "first")
    assert table.schema == ENERGY_SCHEMA
    stored = pl.read_parquet(suites / "first" / "energy.parquet")
    assert alike.table_distance(table, stored) == 0.0


def test_several_suites_are_concatenated(suites: Path) -> None:
    tables = load(f"{suites}/*")
    assert dict(tables.group_by("host").len().iter_rows()) == dict.fromkeys(
        ("bench", "other"), len(load(suites / "first"))
    )
    assert load(suites / "first", suites / "second").equals(tables)
    assert not (suites / "second" / "energy.parquet").exists()  # nothing is written


def test_the_table_has_the_work_of_each_phase(suites: Path) -> None:
    rows = load(suites / "first").filter(workload="file_io", component="drive")
    by = {phase: part["bytes"].unique().to_list() for (phase,), part in rows.group_by("phase")}
    assert by["write-large"] == [41943040.0]
    assert by["all"] == [4 * 41943040.0]
    assert by["between"] == [None]


def test_a_table_of_other_code_or_seal_is_derived_again(
    suites: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = suites / "first"
    table = folder / "energy.parquet"
    honest = table.read_bytes()
    expected = load(folder)
    assert manifest.is_current(table)
    wrong = pl.read_parquet(table).with_columns(pl.col("energy_j") * 2)
    try:
        wrong.write_parquet(table, metadata=manifest.metadata(folder))
        assert not manifest.is_current(table)
        assert load(folder).equals(expected)
        table.write_bytes(honest[: len(honest) // 2])
        assert load(folder).equals(expected)
    finally:
        table.write_bytes(honest)
    for name in ("code", "seal"):
        with monkeypatch.context() as patch:
            patch.setattr(manifest, name, lambda *_: "another")
            assert not manifest.is_current(table)
    assert manifest.is_current(table)


def test_tables_of_a_suite_changed_after_sealing_are_not_current(
    suites: Path, tmp_path: Path
) -> None:
    """An evil twin: the genuine seal, and other files."""
    folder = Path(shutil.copytree(suites / "first", tmp_path / "first"))
    (folder / derived.MARKS).unlink()
    with (folder / "clock.jsonl").open("a") as lines:
        lines.write("{}\n")
    write(results(folder))
    assert not manifest.is_current(folder / "energy.parquet")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], refuses("no-suite-named")),
        (["nowhere"], refuses("no-suite-folder")),
        (["nowhere/*"], refuses("no-suite-matches")),
        (["."], refuses("no-plan")),
    ],
)
def test_a_folder_without_a_suite_is_refused(
    names: list[str], message: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with message:
        load(*names)


def test_one_suite_named_twice_counts_once(suites: Path, tmp_path: Path) -> None:
    assert len(load(suites / "first", f"{suites}/fir*")) == len(load(suites / "first"))
    shutil.copytree(suites / "first", tmp_path / "copy")
    with refuses("suite-in-two-folders"):
        load(suites / "first", tmp_path / "copy")


def test_importing_the_package_loads_neither_polars_nor_numpy() -> None:
    command = "import sys, analysis; sys.exit('polars' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_each_recipe_runs(
    number: int, suites: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = suites.parent / "examples"
    if not examples.exists():
        examples.symlink_to(ROOT / "data" / "examples")
    monkeypatch.chdir(suites.parents[1])
    exec(compile(BLOCKS[number], f"recipe {number}", "exec"), {})
    stdout = capsys.readouterr().out
    assert stdout.strip() and "NaN" not in stdout and not re.search(r"\bnan\b", stdout)


SAME, OTHER = 1 + 1e-12, 1 + 1e-8


def table(value: float | None) -> pl.DataFrame:
    return pl.DataFrame({"name": ["a", "b"], "value": [2.0, value]})


@pytest.mark.parametrize("kind", ["table", "csv"])
@pytest.mark.parametrize(
    ("stored", "remade", "far"),
    [
        (3.0, 3.0, False),
        (3.0 * SAME, 3.0, False),
        (3.0 * OTHER, 3.0, True),
        (-3.0, 3.0, True),
        (1e-17, -1e-17, False),  # what is left of a difference that is 0
        (1e-6, 0.0, True),
        (3.0, None, True),
        (None, 3.0, True),
        (None, None, False),
    ],
)
def test_tables_and_csv_differ_only_beyond_rounding(
    kind: str, stored: float | None, remade: float | None, far: bool
) -> None:
    if kind == "table":
        distance_of_copies = alike.table_distance(
            *(pl.DataFrame({"value": [value]}, {"value": pl.Float64}) for value in (stored, remade))
        )
    else:
        distance_of_copies = alike.csv_distance(
            *(table(value).write_csv().encode() for value in (stored, remade))
        )
    assert (distance_of_copies > alike.ROUNDING) == far
    assert distance_of_copies > 0 or stored == remade


def test_other_names_rows_or_columns_are_infinitely_far() -> None:
    assert alike.table_distance(table(1.0), table(1.0).rename({"value": "v"})) == math.inf
    assert alike.table_distance(table(1.0), table(1.0).head(1)) == math.inf
    renamed = table(1.0).with_columns(name=pl.Series(["a", "c"]))
    assert alike.table_distance(table(1.0), renamed) == math.inf
    nan = table(math.nan)
    assert alike.table_distance(nan, nan) == 0.0
    assert alike.table_distance(nan, table(1.0)) == math.inf


def test_a_long_table_is_read_only_as_far_as_needed(tmp_path: Path) -> None:
    """A few KB of Parquet can hold more than memory does."""
    path, frame = tmp_path / "table.parquet", pl.DataFrame({"energy_j": [1.0, 2.0]})
    frame.write_parquet(path)
    assert alike.read_table(path, frame).equals(frame)
    pl.select(energy_j=pl.repeat(1.0, 100_000)).write_parquet(path)
    assert len(alike.read_table(path, frame)) == 3
    pl.select(energy_j=pl.repeat("x", 100_000)).write_parquet(path)
    other = alike.read_table(path, frame)
    assert len(other) == 0 and math.isinf(alike.table_distance(other, frame))
