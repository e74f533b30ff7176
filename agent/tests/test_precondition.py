"""Preconditioning: what fio is told, when the rounds end, where it is written, what is resumed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import precondition
from agent.storage import opal, opal_ioctl
from agent.storage.base import Place
from agent.storage.guard import GuardError
from agent.storage.opal_ioctl import RangeStatus
from agent.system import notify
from agent.system.command import CommandError, Output
from agent.tests.suite_lab import Lab, blocks_document, entries
from agent.tests.test_stack import EXTENT, SIZE_BYTES, Scene
from contract import plan
from contract.plan import Disk, Plan
from contract.tests.refusal import refuses
from contract.tests.test_plan import DOCUMENT

WANTED = {"passes": 2, "rounds": 7, "round_s": 60, "access": "sequential"}


class Fio:
    """A stand-in for fio: keeps the options of each call, and has the next of its speeds."""

    def __init__(self) -> None:
        self.told: list[dict[str, str]] = []
        self.speeds: list[int] = []

    def at(self, *speeds: int) -> None:
        """Set the speeds in MiB/s of the calls to come; after them it fails."""
        self.told, self.speeds = [], list(speeds)

    def run(self, argv: list[str], **_: object) -> Output:
        self.told.append(dict(word[2:].partition("=")[::2] for word in argv[1:]))
        if not self.speeds:
            failure = {"program": "fio", "reason": "no space left"}
            raise CommandError("program-failed", exit_code=1, **failure)
        write = {"io_bytes": self.speeds.pop(0) << 20, "total_ios": 1, "runtime": 1000}
        job = {"error": 0, "read": {"io_bytes": 0, "total_ios": 0}, "write": write}
        return Output(0, json.dumps({"jobs": [job]}), "")


@pytest.fixture
def fio(monkeypatch: pytest.MonkeyPatch) -> Fio:
    fio = Fio()
    monkeypatch.setattr(precondition, "run", fio.run)
    return fio


@pytest.fixture
def lab(suite: Lab) -> Lab:
    """Provide a suite that is preconditioned, on a stand-in whose disk is a file."""
    suite.plan = planned()

    @contextmanager
    def below(disk: Disk) -> Iterator[Place]:
        suite.stack.calls.append(f"below {disk.role}")
        yield Place(disk, "/dev/sdx1", 1, suite.plan.storage.extent)
        suite.stack.calls.append("relocked")

    suite.stack.below = below  # type: ignore[attr-defined]
    return suite


def planned(**changes: Any) -> Plan:
    document = blocks_document()
    document["disks"] = {**DOCUMENT["disks"], "sed": {**DOCUMENT["disks"]["plain"], "serial": "S2"}}
    return plan.parse(plan.freeze({**document, "precondition": {**WANTED, **changes}}))


def record(lab: Lab) -> dict[str, Any]:
    return lab.read("precondition/plain.json")


def lines(lab: Lab, *states: str) -> list[str]:
    chosen = (entry for entry in entries(lab) if entry.state in states)
    return [f"{entry.facts.get('disk', '')} {entry.detail}".strip() for entry in chosen]


def test_used_disks_are_preconditioned_once_before_the_first_configuration(
    lab: Lab, fio: Fio
) -> None:
    fio.at(500, 500, *(400, 100, 100, 101, 100, 99))
    lab.reasons["file_io"] = ["it is not there"]
    assert lab.execute() == 0
    assert lab.stack.calls[:4] == ["bare", "below plain", "relocked", "bare"]
    assert lab.stack.calls.count("below plain") == 1 and "below sed" not in lab.stack.calls
    document = record(lab)
    assert document["steady"] and len(document["filled"]) == 2
    assert [each["bytes"] >> 20 for each in document["written"]] == [400, 100, 100, 101, 100, 99]
    assert (document["serial"], document["interrupted"]) == ("S1", 0)
    assert document["plan_sha256"] == lab.plan.sha256
    sha256 = hashlib.sha256((lab.folder / "precondition" / "plain.json").read_bytes()).hexdigest()
    assert lines(lab, "preconditioned") == ["plain"]
    assert sha256 in [entry.facts.get("sha256") for entry in entries(lab)]
    assert lines(lab, "preconditioning")[:4] == [
        *("plain", "plain pass 1 of 2", "plain pass 2 of 2"),
        "plain round 1 of at most 7, 400.0 MiB/s",
    ]
    lab.reasons.clear()
    assert lab.execute() == 0, "runs are left to do, and fio would fail"
    assert set(lab.last().values()) == {"finished"}


@pytest.mark.parametrize(
    ("access", "written"), [("sequential", ("write", "131072")), ("random", ("randwrite", "4096"))]
)
def test_fio_writes_only_the_extent(
    lab: Lab, fio: Fio, access: str, written: tuple[str, str]
) -> None:
    lab.plan = planned(access=access)
    fio.at(*[100] * 7)
    assert lab.execute() == 0
    for options in fio.told:
        where = [options[name] for name in ("filename", "offset", "size")]
        assert where == ["/dev/sdx1", str(2**24), str(2**30)]
        assert options["allow_file_create"] == "0"
        assert options["direct"] == options["refill_buffers"] == "1"
        assert "io_size" not in options and "loops" not in options and "time_based" not in options
    assert [options.get("runtime") for options in fio.told] == [None, None, *["60000ms"] * 5]
    assert len({options["randseed"] for options in fio.told}) == 7
    accesses = [(options["rw"], options["bs"]) for options in fio.told]
    assert accesses == [("write", "131072")] * 2 + [written] * 5


def test_an_unsettled_disk_is_reported_and_the_suite_continues(lab: Lab, fio: Fio) -> None:
    fio.at(500, 500, *(100, 200) * 4)
    assert lab.execute() == 0
    assert (record(lab)["steady"], len(record(lab)["written"])) == (False, WANTED["rounds"])


def test_an_interrupted_preconditioning_begins_again(lab: Lab, fio: Fio) -> None:
    fio.at(500, 500, 100, 100)
    assert lab.execute() == 1
    assert not (lab.folder / "precondition").exists()
    (why,) = lines(lab, "suite-failed")
    assert why.startswith("Disk plain (/dev/disk/by-id/x) could not be preconditioned: fio failed")
    assert why.endswith("no space left")
    assert "running" not in [state for state, _ in lab.states()]
    fio.at(500, 500, *[100] * 5)
    assert lab.execute() == 0
    assert record(lab)["interrupted"] == 1
    assert len(record(lab)["filled"]) == 2


def test_a_missing_fio_is_reported(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.fio.command", lambda *_: ["no-such-fio"])
    assert lab.execute() == 1
    assert "no-such-fio is missing: install its package" in lines(lab, "suite-failed")[0]


@pytest.mark.parametrize(
    "entry",
    [{}, {**WANTED, "passes": 0}, {**WANTED, "rounds": 26}, {**WANTED, "access": "trim"}, 3],
)
def test_a_plan_with_an_invalid_preconditioning_is_refused(entry: object) -> None:
    assert plan.parse(plan.freeze(DOCUMENT)).precondition is None
    with refuses("plan-incomplete"):
        plan.freeze({**DOCUMENT, "precondition": entry})


# What is written is an extent of a disk, here a file.


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed.")
def test_only_bytes_of_the_extent_are_written(scene: Scene) -> None:
    extent, end = EXTENT, EXTENT.offset_bytes + EXTENT.size_bytes
    scene.backing.write_bytes(b"\xaa" * (SIZE_BYTES + 2**20))
    states: list[str] = []
    plan = planned(rounds=5, round_s=10)
    configurations = tuple(scene.spec.configurations.values())
    suite = replace(plan, disks=scene.spec.disks, extent=extent, configurations=configurations)
    precondition.all_disks(
        *(suite, scene.backing.parent, scene.stack(suite.storage), []),
        tell=lambda state, *, detail="", **_: states.append(f"{state} {detail}"),
        watchdog=notify.Watchdog(send=False),
    )
    document = json.loads((scene.backing.parent / "precondition" / "plain.json").read_text())
    passes = document["filled"] + document["written"]
    assert {each["bytes"] for each in passes} == {extent.size_bytes}
    assert all(each["seconds"] > 0 for each in passes)
    after = scene.backing.read_bytes()
    assert len(after) == SIZE_BYTES + 2**20
    assert set(after[: extent.offset_bytes]) == set(after[end:]) == {0xAA}
    blocks = [after[at : at + 4096] for at in range(extent.offset_bytes, end, 4096)]
    assert len(set(blocks)) == len(blocks), "data that a disk could not make smaller"
    assert states[-1].startswith("preconditioned")


def test_a_refusal_of_the_guard_prevents_all_writes(scene: Scene, fio: Fio) -> None:
    fio.at(100)
    scene.refuse_from = 1
    with pytest.raises(GuardError), scene.stack().below(scene.spec.disks["plain"]):
        raise AssertionError("it was let through")


def test_a_locking_range_is_open_during_writes_and_locked_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    locked = RangeStatus(0, 1, True, True, "locked")
    monkeypatch.setattr(opal, "range_found", lambda *_: locked)
    monkeypatch.setattr(opal_ioctl, "unlock", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(opal, "relock", lambda *_: calls.append("relock"))
    disk = scene.spec.disks["plain"]
    with pytest.raises(ValueError, match="of ours"), scene.stack().below(disk) as place:
        assert calls == [(place.partition, 1, b"pin")]
        raise ValueError("of ours")
    assert calls[1:] == ["relock"]


def test_a_place_of_another_size_is_refused(scene: Scene) -> None:
    other = replace(scene.spec, extent=replace(EXTENT, size_bytes=2**24))
    disk = scene.spec.disks["plain"]
    with refuses("other-extent"), scene.stack(other).below(disk):
        raise AssertionError("it was let through")
