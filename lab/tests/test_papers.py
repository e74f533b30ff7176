"""What is said of the papers' suites: their figures, and what counts as not done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab import papers, papers_figures
from lab.papers_figures import Ran


def phase(name: str, own_s: float, busy_s: float, length_s: float = 10.0) -> dict[str, Any]:
    return {
        "name": name,
        "t_start_ns": 5,
        "t_end_ns": 5 + int(length_s * 1e9),
        "own_cpu_s": own_s,
        "cpu_busy_s": busy_s,
    }


def suite(root: Path, name: str, *runs: dict[str, Any]) -> Ran:
    """A suite's folder with these runs, all of them planned."""
    for number, run in enumerate(runs):
        folder = root / "runs" / f"{number:04d}{run.get('suffix', '')}"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"phases": [], "left_out": [], **run}))
    planned = [run for run in runs if "suffix" not in run]
    (root / "plan.json").write_text(json.dumps({"runs": planned}))
    return Ran(name, root, 60.0, "")


def told(*done: Ran) -> dict[str, tuple[float, bool | None]]:
    rows = papers_figures.rows(done, 120.0)
    return {row["figure"]: (row["value"], row["meets"]) for row in rows}


def run(status: str, *phases: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"workload": "file_io", "status": status, "phases": list(phases), **more}


def test_a_run_that_did_not_finish_misses_the_target_and_a_skipped_one_does_not(
    tmp_path: Path,
) -> None:
    skipped = suite(tmp_path / "a", "paper", run("finished"), run("skipped"))
    assert told(skipped)["paper: runs finished"] == (1, True)
    void = suite(tmp_path / "b", "paper", run("finished"), run("void"))
    assert told(void)["paper: runs finished"] == (1, False)


def test_an_earlier_try_counts_for_nothing(tmp_path: Path) -> None:
    one = suite(tmp_path, "paper", run("finished"), run("finished", suffix=".void-1"))
    assert told(one)["paper: runs finished"] == (1, True)


def test_what_was_left_out_counts_once_however_often_it_was(tmp_path: Path) -> None:
    out = [{"what": "streebog", "reason": "none"}]
    one = suite(tmp_path, "paper", run("finished", left_out=out), run("finished", left_out=out))
    assert told(one)["paper: parts left out, with a reason"][0] == 1


@pytest.mark.parametrize(
    ("phases", "percent", "meets"),
    [
        ([phase("read", 0.05, 10.0)], 0.5, True),
        ([phase("read", 0.2, 10.0)], 2.0, False),
        ([phase("read", 0.05, 10.0), phase("tail", 5.0, 5.0)], 0.5, True),  # rest is no work
        ([phase("idle", 0.05, 0.1)], 0.5, True),  # at rest: a share of the time
    ],
)
def test_our_share_of_what_was_busy(
    tmp_path: Path, phases: list[dict[str, Any]], percent: float, meets: bool
) -> None:
    found = told(suite(tmp_path, "paper", run("finished", *phases)))
    assert found["paper: our own CPU share, file_io"] == (percent, meets)


def test_only_the_papers_suite_has_a_target_for_our_share(tmp_path: Path) -> None:
    found = told(suite(tmp_path, "block-sizes", run("finished", phase("read", 2.0, 10.0))))
    assert found["block-sizes: our own CPU share, file_io"] == (20.0, None)


def test_a_suite_that_came_to_no_end_is_not_verified(tmp_path: Path) -> None:
    broken = Ran("paper", suite(tmp_path, "paper").suite_dir, 1.0, "the run ended with 1")
    assert told(broken)["paper: verified report"] == (0, False)
    assert told(Ran("paper", None, 1.0, "no plan"))["suites with a verified report"] == (0, False)


def test_an_unknown_suite_is_refused_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        papers.main(["papre"])
    assert ended.value.code == 2
    assert "did you mean paper?" in capsys.readouterr().err
