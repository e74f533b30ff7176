"""Scratch folders: private, at names that nobody can foresee, removed only where they are ours."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agent import measure


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(measure, "SCRATCH_ROOT", tmp_path)
    return tmp_path


def test_scratch_of_a_killed_agent_is_removed(root: Path) -> None:
    folder = measure.shared_scratch()
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_text("x")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o711
    with measure.no_scratch_left():
        assert list(root.iterdir()) == []
        measure.shared_scratch()
    assert list(root.iterdir()) == []


def test_scratch_of_others_stays(root: Path) -> None:
    """Whatever another user put beside it, under a name of ours."""
    elsewhere = root / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "file").write_text("x")
    (root / "fde-testbed-link").symlink_to(elsewhere)
    (root / "fde-testbed-file").write_text("x")
    (root / "fde-testbed-open").mkdir()
    (root / "fde-testbed-open").chmod(0o777)
    if os.geteuid() == 0:  # nobody else may give a folder away
        (root / "fde-testbed-foreign").mkdir(mode=0o700)
        os.chown(root / "fde-testbed-foreign", 65534, 65534)
    before = sorted(root.rglob("*"))
    with measure.no_scratch_left():
        pass
    assert sorted(root.rglob("*")) == before


def test_scratch_names_are_unique(root: Path) -> None:
    del root
    assert len({measure.shared_scratch().name for _ in range(20)}) == 20
