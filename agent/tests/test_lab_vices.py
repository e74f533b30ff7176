"""Drives as people have them: what the testbed makes of each vice, on the real kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agent.tests.guest import CODE, FOLDER, Target
from contract.places import MOUNT_POINT

pytestmark = pytest.mark.lab

CONFIGURATIONS: list[dict[str, Any]] = [
    {"name": "plain", "kind": "plain", "disk": "plain"},
    {"name": "sed-unlocked", "kind": "plain", "disk": "sed"},
    {"name": "opal", "kind": "opal", "disk": "sed"},
]
EXTENT_BYTES = 64 * 2**20


@pytest.fixture(scope="module")
def provisioned(lab: Any) -> Target:
    target = Target(lab, CONFIGURATIONS, EXTENT_BYTES)
    target.lab.ssh(f"mkdir -p {CODE}/bin")
    return target


@pytest.fixture
def target(provisioned: Target) -> Iterator[Target]:
    """Provisioned; whatever a test made of the drives is put right."""
    provisioned.said("prepare")
    yield provisioned
    for role in provisioned.disks:
        provisioned.ask(role, "vices")
    power_cycle(provisioned)
    provisioned.lab.ssh(f"rm -f {CODE}/bin/*")
    provisioned.said("teardown")


def power_cycle(target: Target) -> None:
    target.ask("sed", "power-cycle")
    by_id = target.disks["sed"]["by_id"]
    target.lab.ssh(f"udevadm settle; dd if={by_id} of=/dev/null bs=4096 count=1 iflag=direct")


def causes(target: Target, role: str) -> list[str]:
    """Why `check` says that a disk may not be written."""
    check = f"cd / && PYTHONPATH={CODE} python3 -m agent check --target {FOLDER}/target.json"
    answer = json.loads(target.lab.ssh(check).stdout)
    (disk,) = (disk for disk in answer["disks"] if disk["role"] == role)
    return [refusal["code"] for refusal in disk["refusals"]]


def owned(target: Target) -> bool:
    active: bool = target.ask("sed", "status")["locking_active"]
    return active


def test_no_locked_block_is_read(target: Target) -> None:
    """Each refusal may slow a SATA link: the drive itself counts them, from check to teardown."""
    before = target.ask("sed", "status")["denied_reads"]
    assert causes(target, "sed") == []
    target.said("prepare")
    proven = target.said("storage prove opal sed-unlocked opal opal")
    assert all(line["proof"]["ok"] for line in proven)
    target.said("prepare")
    target.said("teardown")
    assert target.ask("sed", "status")["denied_reads"] == before
    target.said("prepare")
    assert not target.reads("sed")
    assert target.ask("sed", "status")["denied_reads"] == before + 1, "it does count"


def test_a_drive_that_is_dead_after_a_revert_is_ours_again_after_a_power_cycle(
    target: Target,
) -> None:
    target.ask("sed", "vices", dead_after_revert=1)
    assert "ower-cycle it" in target.refusal("teardown")
    assert not owned(target)
    for command in ("teardown", "prepare"):
        assert "ower-cycle it" in target.refusal(command)
    assert causes(target, "sed") == ["dead"]
    target.ask("sed", "vices")
    power_cycle(target)
    (line,) = target.said("teardown")
    assert [action["code"] for action in line["actions"]] == ["blank"]
    assert causes(target, "sed") == []


def test_a_revert_that_was_done_and_answered_with_an_error_is_cleaned_up_after(
    target: Target,
) -> None:
    target.ask("sed", "vices", revert_unanswered=1)
    (line,) = target.said("teardown")
    assert any("answered with an error" in action["sentence"] for action in line["actions"])
    assert not owned(target)
    assert causes(target, "sed") == []
    assert target.said("teardown") == [{"changed": False, "actions": []}]


def test_a_failed_format_is_told_by_its_cause_and_the_drive_is_given_back(target: Target) -> None:
    target.said("teardown")
    program = f"{CODE}/bin/cryptsetup"
    script = (
        '#!/bin/sh\ncase "$*" in *luksFormat*) echo spoilt >&2; exit 1;; esac\n'
        'exec /usr/sbin/cryptsetup "$@"\n'
    )
    target.lab.ssh(f"cat >{program}; chmod +x {program}", stdin=script.encode())
    printed = target.refusal("prepare")
    assert "spoilt" in printed
    assert "given back (reverted by PIN" in printed
    assert "our PIN" not in printed
    assert not owned(target)
    assert causes(target, "sed") == []
    target.lab.ssh(f"rm {program}")
    assert "own" in [action["code"] for action in target.said("prepare")[0]["actions"]]


@pytest.mark.parametrize(
    ("role", "vices", "outcome"),
    [
        ("plain", {}, "discarded"),
        ("plain", {"discard_refused": 1}, "refused"),
        ("plain", {"discard_ignored": 1}, "ignored"),
        ("sed", {}, "asked"),
        ("sed", {"discard_refused": 1}, "refused"),
    ],
)
def test_a_discard_is_recorded_as_it_went(
    target: Target, role: str, vices: dict[str, int], outcome: str
) -> None:
    name = "plain" if role == "plain" else "opal"
    target.agent(f"storage enter {name}")
    target.lab.ssh(f"head -c 32M /dev/urandom >{MOUNT_POINT}/used; sync")
    target.agent("storage leave")
    target.ask(role, "vices", **vices)
    (line,) = target.said(f"storage prove {name}")
    assert line["proof"]["ok"], line["proof"]["mismatches"]
    discard = line["proof"]["discard"]
    size = EXTENT_BYTES if outcome in ("discarded", "asked") else 0
    assert (discard["first_outcome"], discard["first_bytes"]) == (outcome, size)
