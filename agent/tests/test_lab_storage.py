"""The storage and a small suite on the real kernel, cryptsetup and Opal drive of the virtual lab.

The tests build on one another in the order in which they stand: blank disks first, teardown last.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.tests.guest import CODE, FOLDER, Target
from contract import plan
from workloads import registry

pytestmark = pytest.mark.lab

EXTENT_BYTES = 256 * 2**20
SUITE = "/var/tmp/fde-agent-test/suite"
CONFIGURATIONS = [
    {
        "name": name,
        "kind": kind,
        "disk": disk,
        "cipher": "aes-xts-plain64" if bits else None,
        "key_bits": bits,
        "sector_size": 4096 if bits else None,
    }
    for name, kind, disk, bits in (
        ("plain", "plain", "plain", None),
        ("opal", "opal", "sed", None),
        ("dmcrypt-aes128", "dmcrypt", "plain", 128),
        ("dmcrypt-aes256", "dmcrypt", "plain", 256),
    )
]


def holds(path: Path, needle: bytes) -> bool:
    """Whether the bytes stand anywhere in a sparse file; its holes are passed over."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        end = 0
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # ENXIO: no data beyond
                return False
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            if memory.find(needle, start, end) >= 0:
                return True


@pytest.fixture(scope="module")
def target(lab: Any) -> Iterator[Target]:
    """Nothing is prepared; afterwards the disks are blank again, for the modules that follow."""
    target = Target(lab, CONFIGURATIONS, EXTENT_BYTES)
    target.lab.ssh(f"mkdir -p {SUITE}")
    target.agent("teardown")
    yield target
    target.agent("teardown")


def test_a_check_says_all_and_changes_nothing(target: Target) -> None:
    before = {role: target.medium(role) for role in target.disks}
    (line,) = target.said("prepare --check")
    assert line["changed"]
    assert len(line["actions"]) == 3
    assert before == {role: target.medium(role) for role in target.disks}


def test_a_wrong_serial_or_size_is_refused_for_all_disks(target: Target) -> None:
    before = {role: target.medium(role) for role in target.disks}
    for key, value in (("serial", "OTHER"), ("size_bytes", 2**30)):
        wrong = target.description()
        wrong["disks"] = {**target.disks, "sed": {**target.disks["sed"], key: value}}
        target.put(f"{FOLDER}/target.json", wrong)
        assert str(value) in target.refusal("prepare")
    target.put(f"{FOLDER}/target.json", target.description())
    assert before == {role: target.medium(role) for role in target.disks}


def test_preparing_twice_changes_nothing_the_second_time(target: Target) -> None:
    (first,) = target.said("prepare")
    assert first["changed"]
    before = {role: target.medium(role) for role in target.disks}
    assert target.said("prepare") == [{"changed": False, "actions": []}]
    assert before == {role: target.medium(role) for role in target.disks}
    assert not target.reads("sed")


def test_only_plain_leaves_its_text_on_the_medium_as_the_host_sees_it(target: Target) -> None:
    """The drives' backing files are read from outside, where no part of the guest can mislead."""
    visible = {}
    for number, configuration in enumerate(CONFIGURATIONS):
        text = f"plaintext-{number}-seen-from-outside "
        target.agent(f"storage enter {configuration['name']}")
        target.lab.ssh(
            f"yes '{text}' | head -c 1M > /run/fde-testbed/disk/probe; sync; "
            f"grep -c '{text}' /run/fde-testbed/disk/probe"
        )
        backing = Path(target.lab.state["drives"][configuration["disk"]]["backing"])
        visible[configuration["name"]] = holds(backing, text.encode())
    target.agent("storage leave")
    assert visible == {
        "plain": True,
        "opal": False,
        "dmcrypt-aes128": False,
        "dmcrypt-aes256": False,
    }


def test_leftovers_are_closed_and_the_drive_locked_again(target: Target) -> None:
    target.agent("storage enter opal")
    assert target.reads("sed")
    (line,) = target.said("prepare")
    assert [action["code"] for action in line["actions"]] == ["close"]
    assert not target.reads("sed")
    assert target.said("storage leave") == [{"changed": False, "state": "bare"}]


@pytest.mark.parametrize("name", ["opal", "dmcrypt-aes256"])
def test_a_volume_left_suspended_is_taken_down(target: Target, name: str) -> None:
    """As by an agent that was killed while its workload had suspended it: nobody waits for it."""
    target.agent(f"storage enter {name}")
    target.lab.ssh("touch /run/fde-testbed/disk/a && timeout 60 cryptsetup luksSuspend fde-data")
    assert not target.reads("sed")
    (line,) = target.said("storage leave")
    assert (line["changed"], line["state"]) == (True, "bare")
    assert not target.reads("sed")


def test_a_range_that_was_left_unlocked_is_locked_again(target: Target) -> None:
    target.agent("storage enter opal")
    # Taken down behind cryptsetup's back, the range stays open.
    target.lab.ssh("umount /run/fde-testbed/disk && dmsetup remove fde-data")
    assert target.reads("sed")
    (line,) = target.said("prepare")
    assert [action["code"] for action in line["actions"]] == ["lock"]
    assert not target.reads("sed")


def test_a_foreign_signature_in_our_partition_is_refused(target: Target) -> None:
    by_id = target.disks["plain"]["by_id"]
    target.lab.ssh(f"wipefs -aq {by_id}-part1; mkfs.ext4 -qF {by_id}-part1; udevadm settle")
    before = target.medium("plain")
    for command in ("prepare", "storage enter plain", "storage enter dmcrypt-aes128"):
        assert "ext4" in target.refusal(command)
    assert before == target.medium("plain")
    target.lab.ssh(f"mount {by_id}-part1 /mnt")
    try:
        assert "mounted on /mnt" in target.refusal("teardown")
    finally:
        target.lab.ssh(f"umount /mnt; wipefs -aq {by_id}-part1")


def test_a_small_suite_stopped_in_the_middle_and_resumed(target: Target) -> None:
    workloads = {
        "idle": registry.complete("idle", {"seconds": 1}),
        "file_io": registry.complete("file_io", {"small_files": 2, "small_mib": 1, "large_mib": 2}),
    }
    order = [(c["name"], w) for c in CONFIGURATIONS for w in workloads]
    frozen = plan.freeze(
        {
            **target.description(),
            "format": plan.FORMAT,
            "suite_id": "agent-test",
            "suite": "agent-test",
            "host": "target",
            "seed": 1,
            "blocks": 1,
            "origin": "measured",
            "extent": {"offset_bytes": plan.DATA_OFFSET_BYTES, "size_bytes": EXTENT_BYTES},
            "workloads": [{"name": n, "parameters": p} for n, p in workloads.items()],
            "runs": [
                {
                    "run_id": f"{i:04d}-b00-{c}-{w}",
                    "index": i,
                    "block": 0,
                    "configuration": c,
                    "workload": w,
                }
                for i, (c, w) in enumerate(order)
            ],
            "rapl_hz": 10,
            "settle_s": 0.2,
            "tail_s": 0.5,
            "assets": {},
        }
    )
    target.lab.ssh(f"rm -rf {SUITE}; mkdir -p {SUITE}")
    target.put(f"{SUITE}/plan.json", frozen)
    run = f"run --suite-dir {SUITE}"
    stop = f"until grep -q finished {SUITE}/journal.jsonl; do sleep 0.2; done; kill -TERM $pid"
    target.lab.ssh(
        f"cd /; export PYTHONPATH={CODE}:{CODE}/lib; "
        f"python3 -m agent {run} --target {FOLDER}/target.json --secrets {FOLDER}/secrets.json & "
        f"pid=$!; {stop}; wait $pid",
        check=False,
    )
    stopped = _journal(target)
    assert stopped[-1]["state"] == "suite-failed"
    assert not target.reads("sed")
    done_before = {e["run_id"] for e in stopped if e["state"] == "finished"}
    denied_reads = target.ask("sed", "status")["denied_reads"]
    target.agent(run)
    # The host's own look at the locked range, once a suite and after its last run.
    assert target.ask("sed", "status")["denied_reads"] == denied_reads + 1
    entries = _journal(target)
    assert [e["seq"] for e in entries] == list(range(len(entries)))
    assert entries[-1]["detail"] == "8 finished, 0 void"
    repeated = {e["run_id"] for e in entries[len(stopped) :] if e["state"] == "running"}
    assert repeated == {r["run_id"] for r in frozen["runs"]} - done_before
    for entry in frozen["runs"]:
        record = json.loads(target.lab.ssh(f"cat {SUITE}/runs/{entry['run_id']}/run.json").stdout)
        assert record["status"] == "finished"
        assert record["origin"] == "modelled"
        assert record["proof"]["ok"]
        zones = record["other_sources"]["pyrapl"]["zones"]
        assert {z["zone"] for z in zones} == {"package-0", "dram"}
        for phase in record["phases"]:
            # A crowded host stops the modelled machine for longer than the shortest phases.
            long = phase["t_end_ns"] - phase["t_start_ns"] > 200_000_000
            for counter in phase["counters"]:
                assert counter["end"]["energy_uj"] >= counter["start"]["energy_uj"] + long


def _journal(target: Target) -> list[dict[str, Any]]:
    text = target.lab.ssh(f"cat {SUITE}/journal.jsonl").stdout
    return [json.loads(line) for line in text.splitlines()]


def test_no_secret_was_left_anywhere(target: Target) -> None:
    for name in ("luks_passphrase", "opal_admin_pin"):
        secret = target.secrets[name]
        target.lab.ssh(f"umask 077; cat > {FOLDER}/needle", stdin=secret.encode())
        places = f"{SUITE} /var/log /run/log /etc"
        done = target.lab.ssh(f"grep -rlFf {FOLDER}/needle {places}; dmesg", check=False)
        target.lab.ssh(f"rm {FOLDER}/needle")
        assert secret not in done.stdout
        assert not [line for line in done.stdout.splitlines() if line.startswith("/")]
