"""`fde here` on somebody's machine: a guest with a battery, and a user who may use sudo."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract.errors import LabError
from lab.state import Layout
from validation.own_machine import battery, file_disk
from validation.own_machine.faults import KEPT, LEAST_MINUTES, faults, suffer
from validation.own_machine.machine import OwnMachine, Sudo
from validation.own_machine.traces import differences

pytestmark = pytest.mark.lab

FAULTS = {fault.name: fault for fault in faults()}
QUICK = ("none", "ctrl-c-mounted", "folder-tmpfs", "sudo-denied", "sudo-missing")
LATER = [name for name in FAULTS if name not in QUICK]
# add_key(2) and keyctl(2) by number: unlink (9) what is found (10) in root's keyring (-4).
LEAVE = """
truncate -s 4M /var/tmp/left; losetup --find /var/tmp/left
printf x | cryptsetup open --type plain --cipher aes-xts-plain64 --key-size 256 --hash sha256 \
  $(losetup -nO NAME -j /var/tmp/left) left
mkfs.ext4 -q /dev/mapper/left; mount --mkdir /dev/mapper/left /mnt/left
echo left >>/etc/hosts; sysctl -q vm.swappiness=1; systemctl -q stop cron
python3 -c 'import ctypes; ctypes.CDLL(None).syscall(248, b"user", b"fde-left", b"x", 1, -4)'
exec </dev/null >/dev/null 2>&1; setsid bash -c 'exec -a fde-left sleep 600' &
"""
TAKE_BACK = """
umount /mnt/left; rmdir /mnt/left; cryptsetup close left
losetup -d $(losetup -nO NAME -j /var/tmp/left); rm /var/tmp/left; udevadm settle
sed -i /left/d /etc/hosts; sysctl -q vm.swappiness=60; systemctl start cron; pkill -f ^fde-left
python3 -c 'import ctypes; keyctl = lambda *a: ctypes.CDLL(None).syscall(250, *a)
keyctl(9, keyctl(10, -4, b"user", b"fde-left", 0), -4)'
"""


@pytest.fixture(scope="module")
def machine(another_lab: Callable[..., Any]) -> Iterator[OwnMachine]:
    """Yield somebody's machine, which runs on its battery if that can be modelled here."""
    with another_lab("somebody", truth=True) as handle:
        layout = Layout(handle.directory)
        try:
            machine = OwnMachine.furnish(layout, print)
        except LabError as error:
            pytest.skip(f"the packages for the guest are not available: {error}")
        if handle.state["machine"]["name"] != "uml":
            yield machine
            return
        with battery.discharging(layout):
            machine.show_battery()
            yield machine


def test_each_kind_of_trace_is_seen_and_seen_to_be_gone(machine: OwnMachine) -> None:
    before = machine.traces()
    machine.root(LEAVE)
    kinds = {line.split()[1] for line in differences(before, machine.traces())}
    assert kinds == {
        *("files:", "keys:", "loops:", "mappings:", "mounts:", "processes:", "settings:", "units:")
    }
    machine.root(TAKE_BACK)
    assert differences(before, machine.traces()) == []


@pytest.mark.parametrize("sudo", Sudo)
def test_a_user_may_do_as_root_what_sudo_permits(machine: OwnMachine, sudo: Sudo) -> None:
    machine.permit(sudo)
    statuses = machine.typed("sudo -n true; echo $?; fde --version >&2; echo $?").stdout.split()
    assert statuses == [{Sudo.FREE: "0", Sudo.MISSING: "127"}.get(sudo, "1"), "0"]
    machine.permit(Sudo.FREE)


@pytest.mark.parametrize("name", QUICK[2:])
def test_what_cannot_be_measured_is_refused_and_nothing_is_changed(
    machine: OwnMachine, name: str
) -> None:
    result = suffer(machine, FAULTS[name], LEAST_MINUTES)
    assert (result.code, result.left) == (1, [])
    assert result.messages[-1]


def test_an_interrupted_measurement_leaves_nothing(machine: OwnMachine) -> None:
    result = suffer(machine, FAULTS["ctrl-c-mounted"], LEAST_MINUTES)
    assert (result.code, result.left, result.notes) == (130, [], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", LATER)
def test_what_a_fault_left_is_removed_by_the_next_command(machine: OwnMachine, name: str) -> None:
    result = suffer(machine, FAULTS[name], LEAST_MINUTES)
    assert result.left_at_last == []
    assert "its moment never came" not in result.notes


@pytest.mark.slow
def test_a_whole_measurement_answers_and_leaves_its_sealed_suite_only(machine: OwnMachine) -> None:
    before = machine.traces()
    result = machine.typed(f"fde here --yes --minutes {LEAST_MINUTES} --json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["origin"] == "modelled"
    assert len(answer["lines"]) <= 25
    assert max(map(len, answer["lines"][:-2])) <= 80  # the last two have the suite's path
    costs = {(cost["workload"], cost["configuration"]) for cost in answer["costs"]}
    assert {("file_io", "dmcrypt-aes128"), ("package_upgrade", "dmcrypt-aes256")} <= costs
    assert json.loads(machine.typed("fde verify --json").stdout)["ok"]
    assert differences(before, machine.traces(), allowed=KEPT) == []


@pytest.mark.slow
def test_dmcrypt_costs_as_much_on_a_file_as_on_the_whole_disk(machine: OwnMachine) -> None:
    costs = file_disk.compare(machine, blocks=6)
    assert {"file_io", "kernel_tree", "package_upgrade"} <= costs.keys()
    disk, file = costs[file_disk.OVER_ALL]
    assert disk.has(file)
    assert file.has(disk)
