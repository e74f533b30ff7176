"""Cut off in the middle: links lost, agents killed, machine and drive without power.

Whatever was interrupted is simply done again and must come to the same end as if nothing had
happened. Where the agent on the target still works, the next one leaves it alone and says who it
is. The tests tell one story in the order in which they stand: each begins where the last one ended.

`make test` tries a moment of each kind: a link lost while provisioning and around a suite, an agent
killed while it partitions, between owning and locking, and in teardown, an ownership taken by half,
and power lost while owning and with a configuration entered. `make test-all` adds a link lost in a
check and in teardown, an orphan while owning, and an agent killed as it sets the PIN.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.storage import secrets as pin_tries
from agent.storage.guard import MAPPING
from contract.places import MOUNT_POINT
from controller.session import fetch
from drive import control
from drive.tests.guest_sed import SCRIPTS
from lab import power, ssh
from lab.state import Layout

pytestmark = pytest.mark.lab

GUEST = Path(__file__).with_name("guest")
TRAP = "/run/fde-trap"
LOCK = "/run/fde-testbed/agent.lock"
PARTITIONING = r"^sfdisk .*--wipe"
OWNING = r"^cryptsetup luksFormat .*--hw-opal"
CLEARING = r"^blockdev --flushbufs"  # after the first disk, before the second
LOOKING = r"^sfdisk --json"
STARTING = r"systemctl start fde-agent@"
PACKING = r"^(/usr/bin/)?python3 -m agent pack"
PATIENCE_S = 240  # an emulated boot on a busy machine; nothing is asserted about it


@dataclass(frozen=True)
class Trap:
    """A script in the guest that waits for a program to be called; see guest/trap.py."""

    process: subprocess.Popen[str]

    def sprung(self) -> dict[str, Any]:
        """Return the process that it caught, `agents` above it, and how it was `called`."""
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0
        trap: dict[str, Any] = json.loads(out)
        return trap


@dataclass(frozen=True)
class Bench:
    """The lab, with what breaks it and what looks at it."""

    controller: Any

    @property
    def lab(self) -> Any:
        return self.controller.lab

    def drive(self, command: str, **parameters: Any) -> dict[str, Any]:
        """Ask or tell the self-encrypting drive, past the target."""
        socket = Path(self.lab.state["drives"]["sed"]["control"])
        answer = control.ask(socket, command, **parameters)
        assert answer.pop("ok"), answer
        return answer

    def agent(self, arguments: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        result: subprocess.CompletedProcess[str] = self.controller.agent(arguments, check=check)
        return result

    def trap(self, pattern: str, action: str) -> Trap:
        self.lab.ssh(f"rm -rf {TRAP}")
        self.lab.send(GUEST, TRAP)
        process = self.behind(f"python3 {TRAP}/guest/trap.py '{pattern}' {action}")
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return Trap(process)

    def behind(self, command: str) -> subprocess.Popen[str]:
        """Return a command in the guest that runs beside the test."""
        return subprocess.Popen(
            ssh.command(self.lab.state["ssh"], [command]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def resume(self, caught: dict[str, Any], *, flock: bool = True) -> None:
        """Let the caught program continue to its end, and wait until no agent is at work."""
        self.lab.ssh(f"kill -CONT {caught['pid']}" + (f" && flock {LOCK} true" if flock else ""))
        self.lab.ssh(f"while [ -e /proc/{caught['pid']} ]; do sleep 0.2; done")

    def power_cut(self) -> None:
        """Cut the target's power and start it again; what it had in memory is gone."""
        before = self.lab.ssh("cat /proc/sys/kernel/random/boot_id; sync").stdout
        self.lab.disconnect()
        power.reset(Layout(self.lab.directory))
        links = " ".join(
            f"/dev/disk/by-id/nvme-{drive['model']}_{drive['serial']}"
            for drive in self.lab.state["drives"].values()
        )
        question = f"cat /proc/sys/kernel/random/boot_id && udevadm wait --timeout=60 {links}"
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            result = self.lab.ssh(question, check=False)
            if result.returncode == 0 and result.stdout != before:
                return
            time.sleep(1)
        pytest.fail("the guest did not come back")

    def assert_bare(self) -> None:
        """Nothing is mapped or mounted, as the kernel sees it."""
        leftovers = self.lab.ssh(
            f"dmsetup ls; findmnt --noheadings {MOUNT_POINT}", check=False
        ).stdout
        assert MAPPING not in leftovers
        assert MOUNT_POINT not in leftovers

    def assert_locked(self) -> None:
        """As the drive sees it, and by a read."""
        status = self.drive("status")
        assert status["locking_active"]
        assert not status["session"]
        (mine,) = [
            locking_range for locking_range in status["ranges"] if locking_range["range"] == 1
        ]
        assert mine["read_locked"]
        assert mine["write_locked"]

    def assert_whole(self) -> None:
        """Provisioned, and nothing half-done: tables, range, no mapping, and the agent agrees."""
        self.assert_bare()
        self.assert_locked()
        for disk in self._disks():
            (part,) = json.loads(self.lab.ssh(f"sfdisk --json {disk}").stdout)["partitiontable"][
                "partitions"
            ]
            assert part["name"] == "fde-testbed"
        assert json.loads(self.agent("prepare").stdout) == {"changed": False, "actions": []}

    def assert_blank(self) -> None:
        """Torn down: no table, no signature, the drive as it left the factory."""
        self.assert_bare()
        assert not self.drive("status")["locking_active"]
        for disk in self._disks():
            assert self.lab.ssh(f"wipefs --no-act --noheadings {disk}").stdout == ""

    @property
    def secrets(self) -> dict[str, str]:
        values: dict[str, str] = json.loads(Path(self.lab.state["secrets"]).read_text())
        return values

    def opal(self, device: str, *steps: list[Any]) -> None:
        """Have the guest's kernel do Opal calls, each of which must be done."""
        self.lab.send(SCRIPTS, TRAP)
        script = f"python3 {TRAP}/{SCRIPTS.name}/opal_ioctl.py"
        request = json.dumps({"device": device, "steps": steps}).encode()
        for answer in json.loads(self.lab.ssh(script, stdin=request).stdout):
            assert answer.get("code") == 0, answer

    def disk(self, role: str) -> str:
        """Return a disk's by-id path."""
        path: str = json.loads(self.controller.target.read_text())["disks"][role]["by_id"]
        return path

    def _disks(self) -> list[str]:
        return [self.disk(role) for role in ("plain", "sed")]


@pytest.fixture(scope="module")
def bench(provisioned: Any) -> Iterator[Bench]:
    """End provisioned, whatever the tests have done."""
    bench = Bench(provisioned)
    bench.lab.ssh("udevadm settle")
    yield bench
    bench.drive("clear-faults")
    bench.lab.ssh(f"rm -rf {TRAP}")
    provisioned.prepare()


def names_the_holder(words: str, process_name: str, caught: dict[str, Any]) -> bool:
    """Return the sentence of agent/system/lock.py, which Ansible may have wrapped."""
    (agent,) = caught["agents"]
    words = " ".join(words.split())
    return "The test disks are in use by" in words and f"{process_name} (process {agent})" in words


def test_a_link_lost_in_mid_provisioning(bench: Bench) -> None:
    """At the most delicate moment. The agent continues alone, and nothing is left to do."""
    bench.agent("teardown")
    trap = bench.trap(OWNING, "cut")
    result = bench.controller.play("site.yml")
    caught = trap.sprung()
    # Ansible has reconnected by itself and tried again.
    assert result.returncode != 0
    assert names_the_holder(result.stdout + result.stderr, "prepare", caught)
    assert bench.lab.ssh(f"ps -o stat= -p {caught['pid']}").stdout.startswith("T")
    bench.resume(caught)
    bench.assert_whole()


@pytest.mark.slow
def test_a_link_lost_in_mid_check(bench: Bench) -> None:
    """It wrote nothing, and takes itself away even so."""
    trap = bench.trap(LOOKING, "cut")
    check = ("controller", "check", "--inventory", "ansible/inventory/lab")
    result = bench.controller.python(*check)
    caught = trap.sprung()
    assert result.returncode == 1
    assert "Traceback" not in result.stdout + result.stderr
    bench.resume(caught)
    assert bench.controller.python(*check).returncode == 0
    assert bench.lab.ssh("ls -d /run/fde-check.*", check=False).stdout == ""
    bench.assert_whole()


def test_a_link_lost_at_the_start_and_the_end_of_a_suite(bench: Bench, tmp_path: Path) -> None:
    """One agent is started, not two, and what it measured arrives whole."""
    options = ("--suite", "micro", "--blocks", "1", "--out", str(tmp_path))
    result = bench.controller.python(
        "controller", "plan", *options, "--target", str(bench.controller.target)
    )
    folder = Path(result.stdout.split()[-1])
    unit = f"fde-agent@{folder.name}.service"
    variables = {
        "suite_id": folder.name,
        "suite_plan_file": str(folder / "plan.json"),
        "suite_archive_file": str(tmp_path / "fetched.tar"),
    }
    trap = bench.trap(STARTING, "cut")
    result = bench.controller.play("suite.yml", "--tags", "start", **variables)
    caught = trap.sprung()
    assert result.returncode == 0  # by Ansible's own second try
    bench.resume(caught, flock=False)
    first = bench.lab.ssh(f"systemctl show --property=MainPID {unit}").stdout
    result = bench.controller.play("suite.yml", "--tags", "start", **variables)
    assert result.returncode == 0
    assert bench.controller.recap(result)["changed"] == 0
    assert bench.lab.ssh(f"systemctl show --property=MainPID {unit}").stdout == first
    bench.lab.ssh(f"systemctl stop {unit}")
    trap = bench.trap(PACKING, "cut")
    assert bench.controller.play("suite.yml", "--tags", "fetch", **variables).returncode == 0
    bench.resume(trap.sprung())
    fetch.unpack(tmp_path / "fetched.tar", folder)
    journal = bench.lab.ssh(f"cat /var/lib/fde-testbed/suites/{folder.name}/journal.jsonl").stdout
    assert (folder / "journal.jsonl").read_text() == journal
    bench.assert_whole()


@pytest.mark.parametrize(
    ("moment", "action"),
    [(PARTITIONING, "kill"), pytest.param(OWNING, "orphan", marks=pytest.mark.slow)],
)
def test_an_agent_killed_in_mid_provisioning(bench: Bench, moment: str, action: str) -> None:
    """Alone or with the program that it had called; an orphan still holds the disks."""
    bench.agent("teardown")
    trap = bench.trap(moment, action)
    assert bench.agent("prepare", check=False).returncode != 0
    caught = trap.sprung()
    if action == "orphan":
        result = bench.agent("prepare", check=False)
        assert result.returncode == 1
        assert names_the_holder(result.stderr, "prepare", caught)
        bench.resume(caught)
    result = json.loads(bench.agent("prepare").stdout)
    # An orphan brings its work to an end if it was given the passphrases before its agent died.
    assert result["changed"] or action == "orphan"
    bench.assert_whole()


def killed_after(bench: Bench, arguments: str, method: str, table: str) -> None:
    """Start an agent and kill it, with what it has called, once the drive has had a method."""

    def count() -> int:
        rows = bench.drive("calls")["calls"]
        return sum(row["count"] for row in rows if (row["method"], row["table"]) == (method, table))

    before = count()
    to_kill = "$(pgrep -f '^python3 -m agent'; pgrep -x cryptsetup)"
    killer = bench.behind(f"read go; kill -KILL {to_kill}")
    bench.drive("fault", name="slow-reply", delay_ms=300, on="security")
    agent = bench.behind(f"{bench.controller.AGENT} {arguments}")
    while count() == before and agent.poll() is None:
        time.sleep(0.01)
    killer.communicate("now\n", timeout=PATIENCE_S)
    bench.drive("clear-faults")
    out, _ = agent.communicate(timeout=PATIENCE_S)
    assert agent.returncode != 0, out
    bench.lab.ssh("while pgrep -x cryptsetup; do sleep 0.2; done")


@pytest.mark.parametrize(
    ("method", "table"), [pytest.param("Set", "C_PIN", marks=pytest.mark.slow), ("Set", "Locking")]
)
def test_an_agent_killed_between_owning_and_locking(bench: Bench, method: str, table: str) -> None:
    """The drive has our PIN, and nothing else is as it must be."""
    bench.agent("teardown")
    killed_after(bench, "prepare", method, table)
    assert json.loads(bench.agent("prepare").stdout)["changed"]
    bench.assert_whole()


def test_an_ownership_taken_by_half(bench: Bench) -> None:
    """The drive has a PIN, and nothing was activated: with ours it is fixed, else it is left."""
    bench.agent("teardown")
    sed = bench.disk("sed")
    pin = bench.secrets["opal_admin_pin"]
    for key in ("somebody's PIN", pin):
        bench.opal(sed, ["TAKE_OWNERSHIP", {"lr": 0, "key": key}])
        result = bench.agent("prepare", check=False)
        if key == pin:
            assert json.loads(result.stdout)["changed"]
        else:
            assert result.returncode == 1
            assert "--psid-revert" in result.stderr
            psid = bench.secrets["sed_psid"]
            bench.opal(sed, ["PSID_REVERT_TPR", {"lr": 0, "key": psid}])
            # Reverted behind our back: what a restart does to our count of refused PINs.
            bench.lab.ssh(f"rm -f {pin_tries.PLACE}")
    bench.assert_whole()


@pytest.mark.parametrize("commands", [12])
def test_the_drive_loses_power_while_it_is_being_owned(bench: Bench, commands: int) -> None:
    bench.agent("teardown")
    bench.drive("fault", name="power-cut", after_commands=commands, on="security")
    result = bench.agent("prepare", check=False)
    if result.returncode:
        assert result.stderr.startswith("fde: ")
        assert "Traceback" not in result.stderr
    bench.drive("clear-faults")
    bench.agent("prepare")
    bench.assert_whole()


def test_an_agent_killed_in_mid_teardown(bench: Bench) -> None:
    """Between the drive's revert and the wiping of the tables; then the power fails as well."""
    trap = bench.trap(CLEARING, "kill")
    assert bench.agent("teardown", check=False).returncode != 0
    trap.sprung()
    bench.power_cut()
    assert bench.controller.play("teardown.yml", fde_keep=True).returncode == 0
    bench.assert_blank()


@pytest.mark.slow
def test_a_link_lost_in_mid_teardown(bench: Bench) -> None:
    bench.controller.prepare()
    trap = bench.trap(CLEARING, "cut")
    result = bench.controller.play("teardown.yml", fde_keep=True)
    caught = trap.sprung()
    assert result.returncode != 0
    assert names_the_holder(result.stdout + result.stderr, "teardown", caught)
    bench.resume(caught)
    bench.assert_blank()


def test_power_fails_with_a_configuration_entered(bench: Bench) -> None:
    """A self-encrypting disk without power is locked; then everything continues as before."""
    bench.controller.prepare()
    bench.agent("storage enter opal")
    bench.drive("power-cycle")
    bench.power_cut()
    bench.assert_locked()
    assert bench.controller.play("site.yml").returncode == 0
    bench.assert_whole()
    (line,) = bench.agent("storage prove opal").stdout.splitlines()
    assert json.loads(line)["proof"]["ok"]
    bench.assert_whole()
