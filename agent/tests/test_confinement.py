"""The rule in the local part of a profile: put in, kept once, and taken out again."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.system import confinement

PROFILE = "/usr/sbin/mysqld {\n  #include <local/usr.sbin.mysqld>\n}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide profiles with mysqld's, a kernel that confines, and a parser that notes."""
    (tmp_path / "d" / "local").mkdir(parents=True)
    (tmp_path / "d" / "usr.sbin.mysqld").write_text(PROFILE)
    (tmp_path / "loaded").write_text("/usr/sbin/mysqld (enforce)\n")
    parser = tmp_path / "parser"
    parser.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n')
    parser.chmod(0o755)
    return tmp_path


def _calls(folder: Path) -> list[str]:
    calls = folder / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


def _arguments(folder: Path) -> tuple[Path, Path, str]:
    return folder / "d", folder / "loaded", str(folder / "parser")


def test_the_rule_is_added_once_and_other_lines_stay(folder: Path) -> None:
    local = folder / "d" / "local" / "usr.sbin.mysqld"
    local.write_text("/srv/own/** r,\n")
    assert len(confinement.set_rule(*_arguments(folder), allow=True)) == 1
    assert confinement.set_rule(*_arguments(folder), allow=True) == []
    assert local.read_text() == f"/srv/own/** r,\n{confinement.RULE}\n"
    assert len(confinement.set_rule(*_arguments(folder), allow=False)) == 1
    assert confinement.set_rule(*_arguments(folder), allow=False) == []
    assert local.read_text() == "/srv/own/** r,\n"
    assert _calls(folder) == [f"--replace {folder / 'd' / 'usr.sbin.mysqld'}"] * 2


def test_no_rule_is_written_without_apparmor_or_a_profile(folder: Path) -> None:
    (folder / "d" / "usr.sbin.mysqld").rename(folder / "d" / "usr.sbin.other")
    assert confinement.set_rule(*_arguments(folder), allow=True) == []
    (folder / "d" / "usr.sbin.other").rename(folder / "d" / "usr.sbin.mysqld")
    (folder / "loaded").unlink()
    assert confinement.set_rule(*_arguments(folder), allow=True) == []
    assert _calls(folder) == []
    assert not (folder / "d" / "local" / "usr.sbin.mysqld").exists()
