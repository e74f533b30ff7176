"""`load`, and the recipes of docs/recipes.md and library.md, each run as it stands there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from analysis import load
from analysis.energy.energy import ENERGY_SCHEMA
from analysis.stats.alike import table_distance
from analysis.stats.results import results, write
from analysis.suite import manifest
from analysis.tests.pages import Shared
from contract import derived
from contract.places import ROOT
from contract.tests.refusal import Refusal, refuses
from validation.synthetic.suite import Options, write_suite

DOCS = Path(__file__).parents[2] / "docs"
PAGES = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("recipes.md", "library.md"))
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGES, re.M | re.S)
SMALL = Options(blocks=3, interval_ms=100, workloads=("file_io", "kernel_grep"))


@pytest.fixture(scope="module")
def suites(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/suites with two suites on two hosts, of which only the first has its report's tables."""

    def make(root: Path) -> None:
        for name, host in (("first", "bench"), ("second", "other")):
            write_suite(root / "data" / "suites" / name, replace(SMALL, host=host))
        write(results(root / "data" / "suites" / "first"))

    root = tmp_path_factory.mktemp("tidy") / "root"  # some tests change it for a while
    return shutil.copytree(shared("tidy", make)[0], root) / "data" / "suites"


def test_one_suite_is_its_energy_table(suites: Path) -> None:
    table = load(suites / "first")
    assert table.schema == ENERGY_SCHEMA
    assert table_distance(table, pl.read_parquet(suites / "first" / "energy.parquet")) == 0.0


def test_several_suites_stand_below_each_other(suites: Path) -> None:
    both = load(f"{suites}/*")
    assert dict(both.group_by("host").len().iter_rows()) == dict.fromkeys(
        ("bench", "other"), len(load(suites / "first"))
    )
    assert load(suites / "first", suites / "second").equals(both)
    assert not (suites / "second" / "energy.parquet").exists()  # nothing is written


def test_work_stands_beside_the_joules(suites: Path) -> None:
    rows = load(suites / "first").filter(workload="file_io", component="drive")
    by = {phase: part["bytes"].unique().to_list() for (phase,), part in rows.group_by("phase")}
    assert by["write-large"] == [41943040.0]
    assert by["all"] == [4 * 41943040.0]
    assert by["between"] == [None]


def test_a_table_that_was_not_made_here_of_this_is_not_taken(
    suites: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = suites / "first"
    table = folder / "energy.parquet"
    honest = table.read_bytes()
    expected = load(folder)
    assert manifest.current(table)
    wrong = pl.read_parquet(table).with_columns(pl.col("energy_j") * 2)
    try:
        wrong.write_parquet(table, metadata=manifest.metadata(folder))
        assert not manifest.current(table)
        assert load(folder).equals(expected)
        table.write_bytes(honest[: len(honest) // 2])
        assert load(folder).equals(expected)
    finally:
        table.write_bytes(honest)
    for name in ("code", "seal"):
        with monkeypatch.context() as patch:
            patch.setattr(manifest, name, lambda *_: "another")
            assert not manifest.current(table)
    assert manifest.current(table)


def test_tables_of_files_that_are_not_as_sealed_are_not_taken_as_ours(
    suites: Path, tmp_path: Path
) -> None:
    """An evil twin: the genuine seal, and other files."""
    folder = Path(shutil.copytree(suites / "first", tmp_path / "first"))
    (folder / derived.MARKS).unlink()
    with (folder / "clock.jsonl").open("a") as lines:
        lines.write("{}\n")
    write(results(folder))
    assert not manifest.current(folder / "energy.parquet")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], refuses("no-suite-named")),
        (["nowhere"], refuses("no-suite-folder")),
        (["nowhere/*"], refuses("no-suite-matches")),
        (["."], refuses("no-plan")),
    ],
)
def test_what_is_no_suite_is_said(
    names: list[str], message: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with message:
        load(*names)


def test_the_same_suite_twice_is_not_two(suites: Path, tmp_path: Path) -> None:
    assert len(load(suites / "first", f"{suites}/fir*")) == len(load(suites / "first"))
    shutil.copytree(suites / "first", tmp_path / "copy")
    with refuses("suite-in-two-folders"):
        load(suites / "first", tmp_path / "copy")


def test_the_package_itself_stays_light() -> None:
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
