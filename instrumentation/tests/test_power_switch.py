"""Test power switches by a program with an outlet's state in a file, and faults of real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.tests.refusal import refuses
from instrumentation import power_switch

OUTLET = """
log=$0
echo "$1" >>"$log"
[ "$1" = status ] || {{ {deed}; exit; }}
{status}
"""
OBEYS = 'echo "$1" >"$log.state"'
TELLS = 'cat "$log.state"'


def a_switch(log: Path, deed: str = OBEYS, status: str = TELLS) -> tuple[str, ...]:
    """Build the argv of a switch; `log` gets its requests, a line each."""
    return ("sh", "-c", OUTLET.format(deed=deed, status=status), str(log))


def asked(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").split() if log.exists() else []


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_switch, "PAUSE_S", 0.01)
    monkeypatch.setattr(power_switch, "AGREE_S", 0.5)


def test_a_switching_is_read_back(tmp_path: Path) -> None:
    argv = a_switch(tmp_path / "log")
    for on in (False, True):
        power_switch.turn(argv, on=on)
    assert asked(tmp_path / "log") == ["off", "status", "on", "status"]
    slow = 'echo off >"$log.state"; (sleep 0.2; echo on >"$log.state") >/dev/null 2>&1 & true'
    power_switch.turn(a_switch(tmp_path / "slow", deed=slow), on=True)  # a relay that takes a while


@pytest.mark.parametrize(
    ("deed", "status"),
    [
        ("seq 99999; seq 99999 && " + OBEYS, TELLS),  # prints at length, also before it switches
        (OBEYS, f"{TELLS}; seq 99999 >&2"),
        (OBEYS, f"{TELLS}; printf %99999s; sleep 0.1; printf %99999s"),
        (f"sleep 9 & {OBEYS}", TELLS),  # a daemon that keeps the output open
        (f"{OBEYS}; exit 3", TELLS),
    ],
)
def test_a_failing_program_that_switched_succeeds(
    deed: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power_switch, "PROGRAM_S", 5.0)
    for on in (False, True):
        power_switch.turn(a_switch(tmp_path / "log", deed, status), on=on)
    assert (tmp_path / "log.state").read_text(encoding="utf-8") == "on\n"


@pytest.mark.parametrize(
    ("deed", "status", "code"),
    [
        ("true", "echo off", "switch-disagrees"),  # an acknowledgement without the deed
        ("exit 3", "echo off", "switch-disagrees"),
        ("sleep 600", "echo off", "switch-disagrees"),
    ],
)
def test_a_state_that_does_not_follow_is_an_error(
    deed: str, status: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power_switch, "PROGRAM_S", 0.5)
    with refuses(code, asked="on", state="off"):
        power_switch.turn(a_switch(tmp_path / "log", deed, status), on=True)


@pytest.mark.parametrize(
    ("deed", "status", "reason"),
    [
        ("true", 'echo "off on"', "neither on nor off"),
        ("true", "true", "neither on nor off"),
        ("true", "yes on", "did not end"),
        ("true", "exit 3", "ended with 3"),
        ("exit 3", "exit 4", "ended with 3"),
        (OBEYS, "sleep 600 & sleep 600", "did not end"),
        (f"{OBEYS}; sleep 600", "exit 4", "did not end"),  # it switched halfway
    ],
)
def test_an_unread_state_may_be_off(
    deed: str, status: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power_switch, "PROGRAM_S", 0.5)
    monkeypatch.setattr(power_switch, "AGREE_S", 0.0)
    for on in (False, True):
        with refuses("switch-unconfirmed", asked="on" if on else "off") as caught:
            power_switch.turn(a_switch(tmp_path / "log", deed, status), on=on)
        assert reason in str(caught.value) and "power may be off" in str(caught.value)


def test_a_program_that_cannot_be_started_switched_nothing_that_is_known() -> None:
    with refuses("switch-unconfirmed", reason="/none cannot be started: No such file or directory"):
        power_switch.turn(("/none",), on=True)


def test_a_switch_away_for_a_while_is_read_back_later(tmp_path: Path) -> None:
    """Its router hangs on the plug."""
    away = '[ "$(grep -c status "$log")" -gt 3 ] || exit 7; '
    for on in (False, True):
        power_switch.turn(a_switch(tmp_path / "log", OBEYS, away + TELLS), on=on)
    assert asked(tmp_path / "log").count("status") == 5
