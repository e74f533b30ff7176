"""Drives as people have them: what the testbed makes of each vice, on the real kernel.

`make test` tries each vice of a drive in use, an unusable drive of each role (one that ignores its
lock, one that lacks capacity) and the discards that are ignored and that are asked of an encrypted
disk. `make test-all` tries every way in which a drive is unusable and every outcome of a discard.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from agent.tests.guest import CODE, FOLDER, OPAL, PLAIN, Target
from contract.places import MOUNT_POINT

pytestmark = pytest.mark.lab

CONFIGURATIONS = [PLAIN, {**PLAIN, "name": "sed-unlocked", "disk": "sed"}, OPAL]
EXTENT_BYTES = 64 * 2**20
further = partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def provisioned(lab: Any) -> Target:
    target = Target(lab, CONFIGURATIONS, EXTENT_BYTES)
    target.lab.ssh(f"mkdir -p {CODE}/bin")
    return target


@pytest.fixture
def target(provisioned: Target) -> Iterator[Target]:
    """Provisioned; whatever a test made of the drives is put right."""
    provisioned.output_lines("prepare")
    yield provisioned
    for role in provisioned.disks:
        provisioned.ask(role, "vices")
    power_cycle(provisioned)
    provisioned.lab.ssh(f"rm -f {CODE}/bin/*")
    provisioned.output_lines("teardown")


@pytest.fixture
def bare(provisioned: Target) -> Iterator[Target]:
    """Not provisioned."""
    provisioned.agent("teardown")
    yield provisioned
    for role in provisioned.disks:
        provisioned.ask(role, "vices")


def power_cycle(target: Target) -> None:
    target.ask("sed", "power-cycle")
    target.lab.ssh(
        f"udevadm settle; dd if={target.by_id('sed')} of=/dev/null bs=4096 count=1 iflag=direct"
    )


def causes(target: Target, role: str) -> list[str]:
    """Why `check` says that a disk may not be written."""
    check = f"cd / && PYTHONPATH={CODE} python3 -m agent check --target {FOLDER}/target.json"
    answer = json.loads(target.lab.ssh(check).stdout)
    (disk,) = (disk for disk in answer["disks"] if disk["role"] == role)
    return [refusal["code"] for refusal in disk["refusals"]]


def owned(target: Target) -> bool:
    return bool(target.ask("sed", "status")["locking_active"])


def test_few_locked_blocks_are_read(target: Target) -> None:
    """Each refusal may slow a SATA link: the drive itself counts them, from check to teardown."""

    def denied() -> int:
        return int(target.ask("sed", "status")["denied_reads"])

    before = denied()
    assert causes(target, "sed") == []
    target.output_lines("prepare")
    for name in ("opal", "sed-unlocked", "opal"):
        target.output_lines(f"storage enter {name}")
    target.output_lines("storage leave")
    assert denied() == before
    proven = target.output_lines("storage prove opal sed-unlocked opal opal")
    assert all(line["proof"]["ok"] for line in proven)
    assert denied() == before + 1, "one that is meant to be, at each proof by hand"
    target.output_lines("prepare")
    target.output_lines("teardown")
    assert denied() == before + 1
    target.output_lines("prepare")
    assert denied() == before + 2, "one as the range is made"
    assert not target.reads("sed")
    assert denied() == before + 3, "it does count"


def test_a_drive_dead_after_a_revert_works_after_a_power_cycle(target: Target) -> None:
    target.ask("sed", "vices", dead_after_revert=1)
    assert "ower-cycle it" in target.refusal("teardown")
    assert not owned(target)
    for command in ("teardown", "prepare"):
        assert "ower-cycle it" in target.refusal(command)
    assert causes(target, "sed") == ["dead"]
    target.ask("sed", "vices")
    power_cycle(target)
    (line,) = target.output_lines("teardown")
    assert [action["code"] for action in line["actions"]] == ["blank"]
    assert causes(target, "sed") == []


def test_a_revert_that_answers_with_an_error_is_cleaned_up(target: Target) -> None:
    target.ask("sed", "vices", revert_unanswered=1)
    (line,) = target.output_lines("teardown")
    assert any("answered with an error" in action["sentence"] for action in line["actions"])
    assert not owned(target)
    assert causes(target, "sed") == []
    assert target.output_lines("teardown") == [{"changed": False, "actions": []}]


def test_a_link_lost_within_a_revert_is_neither_a_success_nor_a_refusal(target: Target) -> None:
    """The host gives the link up while the drive is at it; the record is kept until it answers."""
    records = "cat /var/lib/fde-testbed/disks.json"
    target.ask("sed", "vices", revert_ms=45_000)
    printed = target.refusal("teardown")
    assert "is unknown" in printed
    assert "everted by" not in printed
    assert json.loads(target.lab.ssh(records).stdout)["FDELABSED0001"]["edges"] is None
    target.ask("sed", "vices")
    deadline = time.monotonic() + 120
    while owned(target) and time.monotonic() < deadline:
        time.sleep(1)
    assert not owned(target), "it did it in the end"
    (line,) = target.output_lines("teardown")
    assert [action["code"] for action in line["actions"]] == ["blank"]
    assert causes(target, "sed") == []


@pytest.mark.parametrize(
    ("role", "vices", "reason"),
    [
        ("sed", {"lock_ignored": 1}, "can be read all the same"),
        ("plain", {"wrap_blocks": 16000}, "does not keep"),  # less capacity than is reported
        further("sed", {"write_refused": 1}, "cannot be written"),
        further("sed", {"no_range": 1}, "could not be made"),
        further("sed", {"msid_unreadable": 1}, "MSID"),
        further("sed", {"wrap_blocks": 16000}, "does not keep"),
        further("sed", {"wrap_blocks": 2**14}, "does not keep"),
        further("plain", {"wrap_blocks": 2**14}, "does not keep"),
    ],
)
def test_an_unusable_drive_is_given_back(
    bare: Target, role: str, vices: dict[str, int], reason: str
) -> None:
    # What earlier tests left would be met in other places and refused; what this one does, too.
    empty = f"blkdiscard --force {bare.by_id(role)}; udevadm settle" if role == "plain" else "true"
    bare.lab.ssh(empty)
    bare.ask(role, "vices", **vices)
    printed = bare.refusal("prepare")
    assert reason in printed
    was_taken = role == "sed" and "msid_unreadable" not in vices
    assert was_taken == ("was given back (reverted by PIN" in printed)
    assert not owned(bare)
    bare.lab.ssh("! grep -q FDELABSED0001 /run/fde-testbed/pin-tries.json")
    bare.ask(role, "vices")
    bare.lab.ssh(empty)
    assert causes(bare, role) == []


def test_a_drive_that_ignores_its_lock_is_not_proven(target: Target) -> None:
    target.ask("sed", "vices", lock_ignored=1)
    output = target.agent("storage prove sed-unlocked opal plain", check=False)
    lines = (json.loads(line) for line in output.stdout.splitlines())
    mismatches = {n["configuration"]: n["proof"]["mismatches"] for n in lines if "proof" in n}
    codes = {name: [mismatch["code"] for mismatch in each] for name, each in mismatches.items()}
    assert codes == {"sed-unlocked": [], "opal": ["range-readable"], "plain": []}
    assert output.returncode == 1


def test_a_header_that_another_program_has_locked_is_not_waited_for(target: Target) -> None:
    part = target.disks["plain"]["by_id"] + "-part1"
    lock = f"/run/cryptsetup/L_$(stat -Lc %Hr:%Lr {part})"
    target.lab.ssh(
        f"mkdir -p -m 700 /run/cryptsetup; touch {lock}; "
        f"flock {lock} sleep 900 >/dev/null 2>&1 </dev/null & sleep 1"
    )
    assert "sleep[" in target.refusal("storage enter plain")
    target.lab.ssh("pkill -x sleep")
    target.output_lines("storage enter plain")
    target.output_lines("storage leave")


def test_a_failed_format_reports_its_cause_and_gives_the_drive_back(target: Target) -> None:
    target.output_lines("teardown")
    program = f"{CODE}/bin/cryptsetup"
    spoilt = 'case "$*" in *luksFormat*) echo spoilt >&2; exit 1;; esac'
    script = f'#!/bin/sh\n{spoilt}\nexec /usr/sbin/cryptsetup "$@"\n'
    target.lab.ssh(f"cat >{program}; chmod +x {program}", stdin=script.encode())
    printed = target.refusal("prepare")
    assert "spoilt" in printed
    assert "given back (reverted by PIN" in printed
    assert "our PIN" not in printed
    assert not owned(target)
    assert causes(target, "sed") == []
    target.lab.ssh(f"rm {program}")
    assert "own" in [action["code"] for action in target.output_lines("prepare")[0]["actions"]]


@pytest.mark.parametrize(
    ("role", "vices", "outcome"),
    [
        ("plain", {"discard_ignored": 1}, "ignored"),
        ("sed", {}, "asked"),
        further("plain", {}, "discarded"),
        further("plain", {"discard_refused": 1}, "refused"),
        further("sed", {"discard_refused": 1}, "refused"),
    ],
)
def test_the_outcome_of_a_discard_is_recorded(
    target: Target, role: str, vices: dict[str, int], outcome: str
) -> None:
    name = "plain" if role == "plain" else "opal"
    target.agent(f"storage enter {name}")
    target.lab.ssh(f"head -c 32M /dev/urandom >{MOUNT_POINT}/used; sync")
    target.agent("storage leave")
    target.ask(role, "vices", **vices)
    (line,) = target.output_lines(f"storage prove {name}")
    assert line["proof"]["ok"], line["proof"]["mismatches"]
    discard = line["proof"]["discard"]
    size = EXTENT_BYTES if outcome in ("discarded", "asked") else 0
    assert (discard["first_outcome"], discard["first_bytes"]) == (outcome, size)
