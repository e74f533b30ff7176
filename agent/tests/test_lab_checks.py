"""The checks on the guest's real sensor, virtual drives, kernel log, clock and timers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.tests.guest import REPOSITORY
from controller.targets.agent_bundle import PACKAGES
from drive.control import ask

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab

CODE = "/opt/fde-checks-test"


def _failed(findings: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in findings if not finding["ok"]}


@pytest.fixture(scope="module")
def target(lab: LabHandle) -> LabHandle:
    for package in PACKAGES:
        lab.send(REPOSITORY / package, CODE)
    return lab


def _by_id(drive: Any) -> str:
    return f"/dev/disk/by-id/nvme-{drive['model']}_{drive['serial']}"


def _run(lab: LabHandle, script: str, *arguments: str) -> Any:
    """Return what a script prints in the guest of its first disk."""
    lab.ssh(f"cat > {CODE}/script.py", stdin=script.encode())
    words = " ".join((_by_id(lab.state["drives"]["plain"]), "$(mktemp -d)", *arguments))
    return json.loads(lab.ssh(f"cd {CODE} && PYTHONPATH=. python3 script.py {words}").stdout)


def test_the_checks_find_faults_in_the_guest(target: LabHandle) -> None:
    lab = target
    by_id = " ".join(map(_by_id, lab.state["drives"].values()))
    command = (
        f"cd {CODE} && udevadm settle && PYTHONPATH=. python3 -m agent.tests.lab_checks_script "
        f"$(for disk in {by_id}; do basename $(readlink -f $disk); done)"
    )
    printed = json.loads(lab.ssh(command).stdout)
    findings = printed["seen"]

    assert _failed(findings["calm"]) == {}
    assert {"temperature", "disk-health", "firmware", "kernel-log", "timers", "powercap"} <= {
        finding["name"] for finding in findings["calm"]
    }
    serials = {drive["serial"] for drive in lab.state["drives"].values()}
    assert {serial for serial, passed, _ in printed["health"] if passed} == serials

    assert [line.split(":")[0] for line in printed["said"]] == ["temperature"]
    assert "60.0 °C" in printed["said"][0]
    (heat,) = (finding for finding in findings["ahead"] if finding["name"] == "temperature")
    assert (heat["ok"], heat["value"]) == (True, 46.0)
    assert heat["waited_s"] > 0

    ahead = _failed(findings["ahead"])
    assert {name: finding["severity"] for name, finding in ahead.items()} == {
        "clock": "note",
        "kernel-log": "warning",
    }
    assert "an odd line, written by a test" in ahead["kernel-log"]["message"]
    back = _failed(findings["back"])
    assert {name: finding["severity"] for name, finding in back.items()} == {
        "clock": "note",
        "kernel-errors": "blocker",
    }
    steps = [ahead["clock"]["value"], back["clock"]["value"]]
    assert steps == [pytest.approx(3600, abs=1), pytest.approx(-3600, abs=1)]

    quiet = printed["quiet"]
    assert {"cron.service", "systemd-tmpfiles-clean.timer"} <= set(quiet["stopped"])
    assert quiet["left"] == []
    assert quiet["started"] == quiet["stopped"] == quiet["after"]
    assert lab.ssh("systemctl is-active ssh.service systemd-udevd.service").stdout == (
        "active\nactive\n"
    )
    assert lab.ssh("systemctl --failed --no-legend").stdout == ""


SETTINGS = """
import json, sys
from pathlib import Path
from agent.checks import CheckContext, Inspection, Memory
name = Path(sys.argv[1]).resolve().name
context = CheckContext(Path("/"), 9.0, Path(sys.argv[2]), (name,), poll_s=0.1)
files = [Path(file.replace("DISK", name)) for file in sys.argv[3:]]
def failed(between):
    look = Inspection(context, Memory())
    look.before(lambda *_: None)
    between()
    look.after()
    findings = [f for f in look.findings if f.name == "settings" and not f.ok]
    return [[f.when, f.facts["changed"]] for f in findings]
changes = {"": failed(lambda: None)}
for file in files:
    was = file.read_text().split("[")[-1].split("]")[0].strip()
    other = {"none": "mq-deadline", "mq-deadline": "none"}
    value = other.get(was) or str(int(was) // 2 or 1 - int(was))
    changes[str(file)] = failed(lambda: file.write_text(value))
    changes[str(file)] += failed(lambda: None)
    file.write_text(was)
    changes[str(file)] += failed(lambda: None)
print(json.dumps(changes))
"""
WRITABLE = ("read_ahead_kb", "max_sectors_kb", "nomerges", "iostats", "scheduler")


def test_a_changed_setting_of_disk_or_kernel_voids_the_run(target: LabHandle) -> None:
    """During the run, in the runs after it, and no more once it is set back."""
    files = [f"/sys/class/block/DISK/queue/{name}" for name in WRITABLE]
    files += ["/proc/sys/vm/dirty_ratio", "/proc/sys/vm/swappiness"]
    printed = _run(target, SETTINGS, *files)
    assert printed.pop("") == [] and len(printed) == len(WRITABLE) + 2
    for file, findings in printed.items():
        assert [when for when, _ in findings] == ["during", "before"], file
        assert all(Path(file).name in changed for _, changed in findings)


HEAT = """
import json, subprocess, sys
from dataclasses import asdict
from pathlib import Path
from agent.checks import Inspection, Memory, CheckContext
name = Path(sys.argv[1]).resolve().name
context = CheckContext(Path("/"), 9.0, Path(sys.argv[2]), (name,), poll_s=0.5, disk_c=3.0)
look = Inspection(context, Memory())
said = []
def tell(cause, why):
    said.append(f"{cause}: {why}")
look.before(tell)
subprocess.run(["dd", f"if=/dev/{name}", "of=/dev/null", "bs=1M", "count=96", "iflag=direct"],
               check=True, capture_output=True)
look.after()
later = Inspection(context, Memory())
later.before(tell)
now, then = ([each.document() for each in inspection.findings] for inspection in (look, later))
print(json.dumps({"found": now, "disks": asdict(look.disks), "said": said, "later": then}))
"""


def test_a_hot_disk_voids_the_run_and_is_waited_for(target: LabHandle) -> None:
    """96 MiB at 64 MiB/s warm the drive from 30 to nearly 60 °C; it throttles from 45 °C on."""
    drive = target.state["drives"]["plain"]
    control = Path(drive["control"])
    hot = {"read_mib_s": 64, "rise_c": 40, "warm_up_s": 1, "throttle_c": 45, "recover_c": 40}
    try:
        assert ask(control, "behave", throttle_slowdown=2, **hot)["ok"]
        printed = _run(target, HEAT)
    finally:
        assert ask(control, "behave")["ok"]
    before, after = (printed["disks"][when][drive["serial"]] for when in ("before", "after"))
    # The drive counts in kelvins: 303 is 30 to smartctl and 29.85 to the kernel.
    assert before["temperature_c"] == pytest.approx(30, abs=0.2)
    assert after["temperature_c"] > 45
    assert after["throttled"] > before["throttled"]
    void = {f["name"] for f in printed["found"] if not f["ok"] and f["severity"] == "blocker"}
    assert void == {"disk-throttle"}
    assert any(
        reason.startswith("disk-temperature: a disk is warmer") for reason in printed["said"]
    )
    (waited,) = (f for f in printed["later"] if f["name"] == "disk-temperature")
    assert waited["ok"] and waited["waited_s"] > 0
