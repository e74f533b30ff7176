"""`fde summary`: some lines at 80 columns, whatever there is of a suite."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.report import summary_text
from analysis.stats.results import results, write
from analysis.suite.incidents import incident_log
from analysis.suite.suite_folder import read
from analysis.tests.faulty_suite import FaultySuite
from analysis.tests.known import analysed
from analysis.tests.pages import Shared
from controller.tests.command import Fde
from validation.synthetic.folder import write_manifest
from validation.synthetic.suite import Options

CALM = Options(blocks=2, interval_ms=100, drift_check=1.001, workloads=("kernel_tree", "sql"))


def summary(folder: Path, fde: Fde) -> list[str]:
    """As it is printed; it never fails and keeps its measure."""
    printed = fde("summary", folder)
    assert printed.err == ""
    lines = printed.out.splitlines()
    assert all(len(line) <= 80 or line.strip().startswith("fde ") for line in lines)
    return lines


@pytest.fixture(scope="module")
def calm(shared: Shared) -> Path:
    def make(folder: Path) -> None:
        write(analysed(folder, CALM))

    return shared("calm", make)[0]


@pytest.fixture
def copy(calm: Path, tmp_path: Path) -> Path:
    shutil.copytree(calm, tmp_path / "s")
    return tmp_path / "s"


def test_a_calm_night(calm: Path, fde: Fde) -> None:
    lines = summary(calm, fde)
    assert lines[0].startswith("synthetic-bench-20260101T000000Z on bench (modelled")
    assert lines[1].startswith("2026-01-01 00:00 to 00:00 UTC")
    assert lines[1].endswith("all files as sealed")
    text = " ".join(lines)
    for part in (
        "2 of 2 blocks complete; 21 of 21 runs finished, 0 void to the end, 0 never made",
        "No interruptions.",
        "The drift check (Drift check on plain) held",
        "limit ±1 %",
        "Of 2 min: measuring 60%, other 40%.",
        "Cost: ",
    ):
        assert part in text
    assert lines[-2].startswith("Next: ")
    assert lines[-1].strip().startswith("fde run --suite synthetic --blocks ")


def test_a_night_of_faults(night: FaultySuite, tmp_path: Path, fde: Fde) -> None:
    folder = shutil.copytree(night.folder, tmp_path / "s")
    write(results(folder))
    text = " ".join(" ".join(summary(folder, fde)).split())
    for part in (
        "1 of 2 blocks complete; 20 of 21 runs finished, 1 void to the end",
        "2× The throttle counter rose by 12",
        "1 reboot of the target, 1 restart of the agent",
        "Waited for: secrets 0.1 s (once), held 0.1 s (once)",
        "The drift check",
        "fde resume ",
    ):
        assert part in text


def without_report(folder: Path) -> None:
    (folder / "energy.parquet").unlink()


def test_without_a_report_the_drift_check_is_told_all_the_same(
    calm: Path, copy: Path, fde: Fde
) -> None:
    line = next(line for line in summary(calm, fde) if line.startswith("The drift check"))
    without_report(copy)
    assert line in summary(copy, fde)


def older_report(folder: Path) -> None:
    path = folder / "meters" / "meter0" / "meter.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "note": "x"}))
    write_manifest(folder)


def without_seal(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def changed(folder: Path) -> None:
    with (folder / "clock.jsonl").open("a") as lines:
        lines.write("{}\n")


def running(folder: Path) -> None:
    """Cut short in the middle, samples not yet decoded."""
    without_seal(folder)
    journal = (folder / "journal.jsonl").read_bytes()
    (folder / "journal.jsonl").write_bytes(journal[: len(journal) // 2])
    for name in sorted(path.name for path in (folder / "runs").iterdir())[9:]:
        shutil.rmtree(folder / "runs" / name)
    (folder / "meters" / "meter0" / "samples.parquet").unlink()
    (folder / "timing.json").unlink()


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != "plan.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (without_report, ["fde report"]),
        (older_report, ["fde report"]),
        (without_seal, ["; not sealed", "fde resume"]),
        (changed, ["files changed after sealing", "fde verify"]),
        (running, ["never made", "fde resume", "timing.json"]),
        (empty, ["no run finished; not sealed", "21 never made", "fde resume"]),
    ],
)
def test_what_it_cannot_say_it_says(
    copy: Path, damage: Callable[[Path], None], expected: list[str], fde: Fde
) -> None:
    damage(copy)
    lines = summary(copy, fde)
    for text in expected:
        assert any(text in line for line in lines), f"{text!r} is not in\n" + "\n".join(lines)
    assert any(line.startswith("Cost: ") for line in lines) == (damage is changed)


def test_a_missing_suite_is_one_sentence(tmp_path: Path, fde: Fde) -> None:
    assert fde("summary", tmp_path / "nowhere", status=1).err.startswith(
        "fde: There is no suite folder"
    )


def test_the_command_in_the_last_line_is_never_cut(copy: Path) -> None:
    without_report(copy)
    deep = copy.parent / ("a" * 40) / ("b" * 40)
    shutil.copytree(copy, deep)
    assert summary_text.summary(deep).lines[-1].endswith(f"{deep}")


def test_samples_damaged_in_the_middle_cost_no_summary(copy: Path, fde: Fde) -> None:
    """Whoever sends a folder can seal what is damaged: it is decoded again from the raw bytes."""
    path = copy / "meters/meter0/samples.parquet"
    content = bytearray(path.read_bytes())
    footer = 8 + int.from_bytes(content[-8:-4], "little")
    content[4:-footer] = bytes(len(content) - 4 - footer)
    path.write_bytes(content)
    write_manifest(copy)
    assert incident_log(read(copy))
    assert summary(copy, fde)
