"""The checks on the guest's real sensor, virtual drives, kernel log, clock and timers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agent.tests.guest import REPOSITORY

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab

CODE = "/opt/fde-checks-test"


def _failed(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in found if not finding["ok"]}


def test_the_checks_see_what_happens_in_the_guest(lab: LabHandle) -> None:
    for package in ("agent", "instrumentation"):
        lab.send(REPOSITORY / package, CODE)
    by_id = [
        f"/dev/disk/by-id/nvme-{drive['model']}_{drive['serial']}"
        for drive in lab.state["drives"].values()
    ]
    command = (
        f"cd {CODE} && udevadm settle && PYTHONPATH=. python3 -m agent.tests.lab_checks_script "
        f"$(for disk in {' '.join(by_id)}; do basename $(readlink -f $disk); done)"
    )
    told = json.loads(lab.ssh(command).stdout)
    seen = told["seen"]

    assert _failed(seen["calm"]) == {}
    assert {"temperature", "disk-health", "firmware", "kernel-log", "timers", "powercap"} <= {
        finding["name"] for finding in seen["calm"]
    }
    serials = {drive["serial"] for drive in lab.state["drives"].values()}
    assert {serial for serial, passed, _ in told["health"] if passed} == serials

    assert [what.split(":")[0] for what in told["said"]] == ["temperature"]
    assert "60.0 °C" in told["said"][0]
    (heat,) = (finding for finding in seen["ahead"] if finding["name"] == "temperature")
    assert (heat["ok"], heat["value"]) == (True, 46.0)
    assert heat["waited_s"] > 0

    ahead = _failed(seen["ahead"])
    assert {name: found["severity"] for name, found in ahead.items()} == {
        "clock": "note",
        "kernel-log": "warning",
    }
    assert "an odd line, written by a test" in ahead["kernel-log"]["message"]
    back = _failed(seen["back"])
    assert {name: found["severity"] for name, found in back.items()} == {
        "clock": "note",
        "kernel-errors": "blocker",
    }
    steps = [ahead["clock"]["value"], back["clock"]["value"]]
    assert steps == [pytest.approx(3600, abs=1), pytest.approx(-3600, abs=1)]

    quiet = told["quiet"]
    assert {"cron.service", "systemd-tmpfiles-clean.timer"} <= set(quiet["stopped"])
    assert quiet["left"] == []
    assert quiet["started"] == quiet["stopped"] == quiet["after"]
    assert lab.ssh("systemctl is-active ssh.service systemd-udevd.service").stdout == (
        "active\nactive\n"
    )
    assert lab.ssh("systemctl --failed --no-legend").stdout == ""
