"""Derived files count only where this user's key shows that they were made here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from contract import derived
from contract.places import state_folder
from contract.tests.refusal import refuses

TABLE = "energy.parquet"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a table that was derived here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / TABLE).write_bytes(b"joules")
    derived.mark(folder, [TABLE], "seal")
    return folder


def test_what_was_made_here_is_ours_wherever_it_is_moved(made: Path, tmp_path: Path) -> None:
    assert derived.is_ours(made, TABLE, "seal")
    assert derived.is_ours(Path(shutil.copytree(made, tmp_path / "copy")), TABLE, "seal")
    key = state_folder() / "derived.key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.read_text() not in (
        made / derived.MARKS
    ).read_text(encoding="utf-8")


def test_another_content_source_or_name_is_not(made: Path) -> None:
    assert not derived.is_ours(made, TABLE, "another seal")
    assert not derived.is_ours(made, TABLE, "")
    shutil.copyfile(made / TABLE, made / "summary.parquet")
    marks = json.loads((made / derived.MARKS).read_text(encoding="utf-8"))
    (made / derived.MARKS).write_text(json.dumps({**marks, "summary.parquet": marks[TABLE]}))
    assert derived.is_ours(made, TABLE, "seal")
    assert not derived.is_ours(made, "summary.parquet", "seal")
    (made / TABLE).write_bytes(b"other joules")
    assert not derived.is_ours(made, TABLE, "seal")
    (made / TABLE).unlink()
    assert not derived.is_ours(made, TABLE, "seal")


def test_the_marks_of_another_user_are_none(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not derived.is_ours(made, TABLE, "seal")
    for text in ("", "[]", "{", json.dumps({TABLE: 1}), json.dumps({TABLE: "ü"})):
        (made / derived.MARKS).write_text(text, encoding="utf-8")
        assert not derived.is_ours(made, TABLE, "seal")


def test_without_a_place_for_the_key_nothing_is_ours(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(made / TABLE))  # a file
    derived.mark(made, [TABLE], "seal")
    assert not derived.is_ours(made, TABLE, "seal")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert derived.is_ours(made, TABLE, "seal")


def test_a_key_that_others_can_read_is_refused(made: Path) -> None:
    (state_folder() / "derived.key").chmod(0o644)
    with refuses("secret-open"):
        derived.is_ours(made, TABLE, "seal")
