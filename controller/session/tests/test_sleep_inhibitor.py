"""Sleep is inhibited during a session, by a program that ends with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.tests.programs import program
from controller.session import sleep_inhibitor as module
from controller.session.sleep_inhibitor import awake

# Whether it is at work is a file, as the real one's lock is a file that logind watches.
INHIBIT = """
echo "$1" >>{folder}/asked
{refuse}
touch {folder}/held
shift 4
"$@"
rm {folder}/held
"""
ALL = '[ "$1" = --what=sleep:idle:handle-lid-switch ] && { echo "Access denied" >&2; exit 1; }'


@pytest.fixture(autouse=True)
def _with_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SYSTEMD", tmp_path)


def inhibit(folder: Path, refuse: str = "") -> str:
    """Make a systemd-inhibit that may refuse."""
    return str(program(folder / "systemd-inhibit", INHIBIT.format(folder=folder, refuse=refuse)))


def test_sleep_is_inhibited_within_the_context(tmp_path: Path) -> None:
    messages: list[str] = []
    with awake(messages.append, inhibit(tmp_path)):
        assert (tmp_path / "held").exists()
    assert not (tmp_path / "held").exists() and not messages


def test_without_permission_for_the_lid_only_sleep_is_inhibited(tmp_path: Path) -> None:
    with awake(pytest.fail, inhibit(tmp_path, ALL)):
        assert (tmp_path / "held").exists()
    assert (tmp_path / "asked").read_text().split()[-1] == "--what=sleep"


def test_a_refusal_is_a_warning(tmp_path: Path) -> None:
    messages: list[str] = []
    with awake(messages.append, inhibit(tmp_path, 'echo "Access denied" >&2; exit 1')):
        pass
    (sentence,) = messages
    assert "(Access denied)" in sentence and "systemctl mask sleep.target" in sentence


def test_without_systemd_there_is_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with awake(pytest.fail, str(tmp_path / "none")):
        pass
    monkeypatch.setattr(module, "SYSTEMD", tmp_path / "none")
    with awake(pytest.fail, inhibit(tmp_path)):
        assert not (tmp_path / "asked").exists()
