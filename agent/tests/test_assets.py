"""Assets are compared with the sums that the plan knows; older plans know none."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from agent import assets
from contract import plan
from contract.tests.refusal import Refusal, refuses
from contract.tests.test_plan import DOCUMENT

CONTENT = b"a clip"
SUM = hashlib.sha256(CONTENT).hexdigest()


def plan_of(folder: Path, entry: Any, load: str = "video") -> plan.Plan:
    """Return a plan of one workload with one asset in the folder."""
    document = {
        **DOCUMENT,
        "assets": {"clip": entry},
        "workloads": [{"name": load, "parameters": {}}],
        "runs": [],
    }
    (folder / "clip.mpg").write_bytes(CONTENT)
    return plan.parse(plan.freeze(document))


def test_a_given_or_listed_sum_is_compared_and_returned(tmp_path: Path) -> None:
    path, sums = str(tmp_path / "clip.mpg"), tmp_path / "SHA256SUMS"
    for line in (f"{SUM}  ./clip.mpg", f"{SUM} *clip.mpg", f"{SUM.upper()}  /elsewhere/clip.mpg"):
        sums.write_text(f"{'0' * 64}  other.mpg\n{line}\n", encoding="utf-8")
        entry = {"path": path, "sha256": None, "sums": str(sums)}
        assert assets.check(plan_of(tmp_path, entry)) == {"clip": SUM}
    entry = {"path": path, "sha256": SUM, "sums": None}
    assert assets.check(plan_of(tmp_path, entry)) == {"clip": SUM}


@pytest.mark.parametrize(
    ("sha256", "listed", "words"),
    [
        ("0" * 64, None, refuses("asset-differs", expected="0" * 64)),
        (None, f"{'0' * 64}  clip.mpg", refuses("asset-differs", expected="0" * 64)),
        (None, f"{SUM}  clip.mp4", refuses("asset-not-listed", name="clip.mpg")),
        (None, None, refuses("sums-unread")),
    ],
)
def test_a_file_with_another_sum_is_refused(
    sha256: str | None, listed: str | None, words: Refusal, tmp_path: Path
) -> None:
    sums = tmp_path / "SHA256SUMS"
    if listed:
        sums.write_text(listed + "\n", encoding="utf-8")
    entry = {
        "path": str(tmp_path / "clip.mpg"),
        "sha256": sha256,
        "sums": None if sha256 else str(sums),
    }
    with words:
        assets.check(plan_of(tmp_path, entry))


def test_unused_or_missing_assets_are_not_checked(tmp_path: Path) -> None:
    entry = {"path": str(tmp_path / "clip.mpg"), "sha256": "0" * 64, "sums": None}
    assert assets.check(plan_of(tmp_path, entry, load="idle")) == {}
    entry["path"] = str(tmp_path / "absent.mpg")
    assert assets.check(plan_of(tmp_path, entry)) == {}
