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
        ("true", 'echo "off on"', "switch-status"),
        ("true", "true", "switch-status"),
        ("true", "yes on", "switch-silent"),  # without an end
        ("true", "exit 3", "switch-program"),
        ("exit 3", "echo off", "switch-program"),
        ("exit 3", "exit 4", "switch-program"),
        (OBEYS, "sleep 600 & sleep 600", "switch-silent"),
    ],
)
def test_a_state_that_does_not_follow_is_an_error(
    deed: str, status: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power_switch, "PROGRAM_S", 0.5 if code == "switch-silent" else 60.0)
    with refuses(code):
        power_switch.turn(a_switch(tmp_path / "log", deed, status), on=True)
