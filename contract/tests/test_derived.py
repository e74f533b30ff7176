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
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a table that was derived here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / TABLE).write_bytes(b"joules")
    derived.mark(folder, [TABLE], "seal")
    return folder


def test_a_derived_file_is_ours_even_in_a_copied_folder(ours: Path, tmp_path: Path) -> None:
    assert derived.is_ours(ours, TABLE, "seal")
    assert derived.is_ours(Path(shutil.copytree(ours, tmp_path / "copy")), TABLE, "seal")
    key = state_folder() / "derived.key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.read_text() not in (
        ours / derived.MARKS
    ).read_text(encoding="utf-8")


def test_another_content_source_or_name_is_not_ours(ours: Path) -> None:
    assert not derived.is_ours(ours, TABLE, "another seal")
    assert not derived.is_ours(ours, TABLE, "")
    shutil.copyfile(ours / TABLE, ours / "summary.parquet")
    marks = json.loads((ours / derived.MARKS).read_text(encoding="utf-8"))
    (ours / derived.MARKS).write_text(json.dumps({**marks, "summary.parquet": marks[TABLE]}))
    assert derived.is_ours(ours, TABLE, "seal")
    assert not derived.is_ours(ours, "summary.parquet", "seal")
    (ours / TABLE).write_bytes(b"other joules")
    assert not derived.is_ours(ours, TABLE, "seal")
    (ours / TABLE).unlink()
    assert not derived.is_ours(ours, TABLE, "seal")


def test_marks_of_another_user_are_not_ours(
    ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not derived.is_ours(ours, TABLE, "seal")
    for text in ("", "[]", "{", json.dumps({TABLE: 1}), json.dumps({TABLE: "ü"})):
        (ours / derived.MARKS).write_text(text, encoding="utf-8")
        assert not derived.is_ours(ours, TABLE, "seal")


def test_without_a_state_folder_nothing_is_ours(
    ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(ours / TABLE))  # a file
    derived.mark(ours, [TABLE], "seal")
    assert not derived.is_ours(ours, TABLE, "seal")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert derived.is_ours(ours, TABLE, "seal")


def test_a_key_that_others_can_read_is_refused(ours: Path) -> None:
    (state_folder() / "derived.key").chmod(0o644)
    with refuses("secret-open"):
        derived.is_ours(ours, TABLE, "seal")


@pytest.mark.parametrize("variable", ["", "state", "./state", "~/state"])
def test_a_relative_state_folder_is_ignored(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", variable)
    assert state_folder() == tmp_path / ".local" / "state" / "fde-testbed"


def test_no_key_is_made_in_the_home_of_another_user(
    ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: bool) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    assert not derived.is_ours(ours, TABLE, "seal")
