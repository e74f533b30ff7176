"""Of what lies beside the scratch folders, only what is ours is taken away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent import measure


def test_a_killed_agents_folders_go_and_other_peoples_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("another owner needs root")
    monkeypatch.setattr(measure, "SCRATCH_ROOT", tmp_path)
    ours, theirs, elsewhere = (tmp_path / f"fde-testbed-{name}" for name in ("a", "b", "c"))
    kept = tmp_path / "kept"
    for folder in (ours, theirs, kept):
        folder.mkdir()
        (folder / "file").touch()
    os.chown(theirs, 65534, 65534)
    elsewhere.symlink_to(kept)
    with measure.no_scratch_left():
        assert not ours.exists()
        measure.shared_scratch()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "fde-testbed-b",
        "fde-testbed-c",
        "kept",
    ]
    assert (kept / "file").exists() and (theirs / "file").exists()
