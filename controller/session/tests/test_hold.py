"""The agent held while there is a reason, with real leases in a file."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from agent.system import lock as leases
from contract.tests.programs import wait_until
from contract.tests.refusal import refuses
from controller.session import hold, suite_folder


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_S", "RETRY_S", "RENEW_S", "SETTLE_S"):
        monkeypatch.setattr(hold, name, 0.01)


class Target:
    """The target's lease, over a link that can be cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.away = threading.Event()
        self.asked = 0

    def hold(self, reason: str, seconds: float) -> bool:
        self.asked += 1
        if not self.away.is_set():
            leases.take(reason, seconds, self.path)
        return not self.away.is_set()

    def let_go(self) -> bool:
        if not self.away.is_set():
            leases.end(self.path)
        return not self.away.is_set()

    def reason(self) -> str:
        return leases.reason(self.path) or ""


def test_the_agent_is_held_while_there_is_a_reason(tmp_path: Path) -> None:
    target, reasons, messages = Target(tmp_path / "hold.json"), [""], list[str]()
    with hold.Hold(target, lambda: reasons[0], messages.append):
        assert target.reason() == ""
        reasons[0] = "the meter is silent"
        wait_until(lambda: target.reason() == "the meter is silent")
        until_ns = json.loads(target.path.read_text())["until_ns"]
        wait_until(lambda: json.loads(target.path.read_text())["until_ns"] > until_ns)  # renewed
        reasons[0] = "the disk is full"
        wait_until(lambda: target.reason() == "the disk is full")
        reasons[0] = ""
        wait_until(lambda: target.reason() == "")
        wait_until(lambda: len(messages) == 3)
    assert messages[0].startswith("the meter is silent: no run is begun")
    assert messages[2] == "fixed: runs start again"


def test_an_absent_target_is_held_once_it_answers(tmp_path: Path) -> None:
    target, messages = Target(tmp_path / "hold.json"), list[str]()
    target.away.set()
    with hold.Hold(target, lambda: "the meter is silent", messages.append):
        wait_until(lambda: target.asked > 3)
        assert target.reason() == ""
        target.away.clear()
        wait_until(target.reason)
    assert target.reason() == ""  # a session that ends leaves nothing behind
    assert len(messages) == 1


def test_a_full_disk_is_a_reason_to_hold_and_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert suite_folder.lack_of_room(tmp_path) == ""
    monkeypatch.setattr(suite_folder, "LEAST_FREE_BYTES", 1 << 60)
    assert "nearly full" in suite_folder.lack_of_room(tmp_path)
    with refuses("no-room"):
        suite_folder.require_room(tmp_path)
