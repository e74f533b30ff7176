"""Faults on request: what a host sees of each, and that the drive is sound afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from drive import faults
from drive.faults import FaultError, Faults, IoError, MediaError, PowerCut, SlowReply
from drive.initiator import Initiator
from drive.opal import uids
from drive.opal.packets import Value
from drive.opal.uids import Status
from drive.tests.opal_host import OWNER, USER2, OpalSession, RefusedError, lock, msid, refused
from drive.tests.process import REPOSITORY, Drive, until

MakeDrive = Callable[..., Drive]
WRITE_FAULT, READ_ERROR, DNR = 0x280, 0x281, 0x4000


def in_force(drive: Drive) -> list[dict[str, Any]]:
    return list(drive.ask("status")["faults"])


# The pure part.


def test_a_fault_that_is_counted_ends_by_itself() -> None:
    drive_faults = Faults()
    drive_faults.add(SlowReply(delay_ms=7, count=2))
    met = [drive_faults.meet("read", [(0, 1)]).delay_ms for _ in range(4)]
    assert met == [7, 7, 0, 0] and not drive_faults.active


def test_a_fault_without_a_count_lasts_until_it_is_cleared() -> None:
    drive_faults = Faults()
    drive_faults.add(IoError(on="write"))
    for _ in range(3):
        assert (
            drive_faults.meet("write", []).io_error and not drive_faults.meet("read", []).io_error
        )
    assert drive_faults.describe() == [{"name": "io-error", "count": 0, "on": "write", "left": 0}]
    drive_faults.clear()
    assert not drive_faults.active and not drive_faults.meet("write", []).io_error


@pytest.mark.parametrize(
    ("extent", "hit"), [((9, 1), False), ((9, 2), True), ((11, 1), True), ((12, 1), False)]
)
def test_a_media_error_hits_commands_that_overlap_it(extent: tuple[int, int], hit: bool) -> None:
    drive_faults = Faults()
    drive_faults.add(MediaError(lba=10, blocks=2))
    assert drive_faults.meet("read", [(0, 1), extent]).media_error is hit


def test_faults_add_up_and_are_counted_apart() -> None:
    drive_faults = Faults()
    for fault in (SlowReply(1), SlowReply(2), PowerCut(2), IoError(1)):
        drive_faults.add(fault)
    first, second = drive_faults.meet("read", []), drive_faults.meet("read", [])
    assert (first.delay_ms, first.io_error, first.power_lost) == (3, True, False)
    assert (second.delay_ms, second.io_error, second.power_lost) == (3, False, True)


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("slow", {}, "known are: authority-locked-out, block-sid, io-error"),
        (None, {}, "known are"),
        ("slow-reply", {}, r"takes delay_ms, count \(optional\), on \(optional\)"),
        ("slow-reply", {"delay_ms": 1, "for": 2}, "takes delay_ms"),
        ("slow-reply", {"delay_ms": "50"}, "delay_ms is a whole number from 1 on"),
        ("slow-reply", {"delay_ms": True}, "delay_ms is a whole number"),
        ("slow-reply", {"delay_ms": 1, "count": -1}, "count is a whole number from 0 on"),
        ("media-error", {"lba": 1 << 70}, "lba is a whole number"),
        ("io-error", {"on": "security"}, "on is one of: read, write, both"),
        ("io-error", {"on": []}, "on is one of"),
        ("authority-locked-out", {"authority": 3}, "authority is a name"),
        ("block-sid", {"x": 1}, "takes no parameters"),
    ],
)
def test_a_wrong_fault_request_gets_its_reason(
    name: object, parameters: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(FaultError, match=sentence):
        faults.parse(name, parameters)


# Against the running process.


def test_a_slow_reply_waits_and_is_right(plain: Drive) -> None:
    queue = plain.io()
    assert queue.write(0, b"slow".ljust(4096)).status == 0
    plain.fault("slow-reply", delay_ms=20, count=2)
    busy_ns = plain.ask("stats")["busy_ns"]
    assert queue.read(0, 1).data == b"slow".ljust(4096)
    assert in_force(plain)[0]["left"] == 1
    assert queue.read(0, 1).data == b"slow".ljust(4096)
    assert in_force(plain) == []
    queue.read(0, 1)  # a command is counted after its answer is given and before the next one
    assert plain.ask("stats")["busy_ns"] - busy_ns >= 40_000_000


@pytest.mark.parametrize("opal", [False, True])
def test_an_io_error_may_be_retried(make_drive: MakeDrive, opal: bool) -> None:
    drive = make_drive(opal)
    queue = drive.io()
    assert queue.write(0, b"kept".ljust(4096)).status == 0
    drive.fault("io-error", on="write", count=1)
    assert queue.read(0, 1).status == 0
    assert queue.write(0, bytes(4096)).status == WRITE_FAULT, "without Do Not Retry"
    assert queue.read(0, 1).data == b"kept".ljust(4096)
    drive.fault("io-error", on="read", count=2)
    assert [queue.read(0, 1).status for _ in range(3)] == [READ_ERROR, READ_ERROR, 0]
    assert queue.write(0, b"done".ljust(4096)).status == 0
    assert queue.read(0, 1).data == b"done".ljust(4096)


def test_a_media_error_stays_until_it_is_cleared(plain: Drive) -> None:
    queue = plain.io()
    plain.fault("media-error", lba=10, blocks=2)
    for _ in range(2):
        assert queue.read(8, 4).status == DNR | READ_ERROR
        assert queue.write(11, bytes(4096)).status == DNR | WRITE_FAULT
        assert queue.read(9, 1).status == queue.read(12, 1).status == 0
    trim = (2).to_bytes(4, "little").rjust(8, b"\0") + (9).to_bytes(8, "little")
    assert queue.run(0x09, 1, trim, cdw11=4).status == DNR | WRITE_FAULT
    assert queue.run(0x08, 1, cdw10=11).status == DNR | WRITE_FAULT
    assert plain.ask("power-cycle")["ok"]
    queue = plain.io()
    assert queue.read(10, 1).status == DNR | READ_ERROR
    assert plain.ask("clear-faults")["ok"] and in_force(plain) == []
    assert queue.read(10, 1).status == 0


@pytest.mark.usefixtures("ranged")
def test_a_power_cut_answers_nothing_and_locks(sed: Drive) -> None:
    queue, other = sed.io(), sed.io()
    old, new = os.urandom(8 * 4096), os.urandom(8 * 4096)
    assert queue.write(256, old).status == 0
    sed.fault("power-cut", after_commands=3, on="write")
    for _ in range(2):
        assert queue.read(256, 1).status == queue.write(300, bytes(4096)).status == 0
    with pytest.raises(OSError):
        queue.write(256, new)
    with pytest.raises(OSError):
        other.read(0, 1)
    assert in_force(sed) == []
    assert sed.io().read(256, 1).status == DNR | 0x286
    lock(sed.connect(), USER2, 1, locked=False)
    data = sed.io().read(256, 8).data
    assert data == new[: 4 * 4096] + old[4 * 4096 :], "the write was cut in the middle"


def test_a_power_cut_while_the_owner_changes_something_changes_nothing(
    sed: Drive, ranged: Initiator
) -> None:
    before = sed.path("state.json").read_bytes()
    session = OpalSession(ranged, uids.ADMIN_SP, uids.SID, OWNER)
    sed.fault("power-cut", on="security")
    with pytest.raises(OSError):
        session.set(uids.C_PIN_SID, {3: b"another pin"})
    with OpalSession(sed.connect(), uids.ADMIN_SP, uids.SID, OWNER):
        pass
    lock(sed.connect(), USER2, 1, locked=False)
    assert sed.path("state.json").read_bytes() == before


def test_an_io_fault_leaves_identify_alone(plain: Drive) -> None:
    plain.fault("io-error")
    plain.fault("media-error", lba=0, blocks=1 << 20)
    assert plain.connect().identify(1)[4:14] == b"SERIAL0001"


@pytest.mark.parametrize("name", ["authority-locked-out", "block-sid", "refuse-opal", "shadow-on"])
def test_a_plain_drive_has_no_opal_faults(plain: Drive, name: str) -> None:
    parameters = {"authority": "SID"} if name == "authority-locked-out" else {}
    answer = plain.ask("fault", name=name, **parameters)
    assert not answer["ok"] and "self-encrypting" in answer["error"]
    assert not plain.ask("calls")["ok"]


def test_a_locked_out_authority_refuses_the_right_pin_until_power_is_lost(
    sed: Drive, ranged: Initiator
) -> None:
    sed.fault("authority-locked-out", authority="User2")
    assert refused(lock, ranged, USER2, 1) == Status.AUTHORITY_LOCKED_OUT
    with OpalSession(ranged, uids.ADMIN_SP, uids.SID, OWNER):
        pass
    answer = sed.ask("fault", name="authority-locked-out", authority="User99")
    assert not answer["ok"] and "User99" in answer["error"]
    assert sed.ask("power-cycle")["ok"]
    lock(sed.connect(), USER2, 1)


def test_a_blocked_sid_cannot_log_in_until_power_is_lost(sed: Drive) -> None:
    host = sed.connect()
    pin = msid(host)
    sed.fault("block-sid")
    with pytest.raises(RefusedError):
        OpalSession(host, uids.ADMIN_SP, uids.SID, pin)
    assert msid(host) == pin, "Anybody is not concerned"
    assert sed.ask("power-cycle")["ok"]
    with OpalSession(sed.connect(), uids.ADMIN_SP, uids.SID, pin):
        pass


def test_a_drive_may_claim_opal_and_refuse_it(sed: Drive) -> None:
    host = sed.connect()
    sed.fault("refuse-opal")
    assert in_force(sed) == [{"name": "refuse-opal"}]
    assert host.security_receive(1, 1).data[48:50] == b"\x00\x01", "it still claims it"
    assert refused(OpalSession, host, uids.ADMIN_SP) == Status.FAIL
    assert sed.ask("clear-faults")["ok"]
    assert msid(host)


@pytest.mark.usefixtures("ranged")
def test_a_shadow_left_on_hides_the_first_blocks(sed: Drive) -> None:
    data = b"own data".ljust(4096)
    assert sed.io().write(0, data).status == 0
    sed.fault("shadow-on")
    assert sed.ask("status")["shadowed"]
    completion = sed.io().read(0, 1)
    assert completion.status == 0 and completion.data != data
    assert sed.io().write(0, bytes(4096)).status != 0


def test_a_warm_reset_ends_connections_and_does_not_lock(sed: Drive, ranged: Initiator) -> None:
    queue = sed.io()
    assert sed.ask("warm-reset")["ok"]
    for lost in (ranged, queue):
        with pytest.raises(OSError):
            lost.run(0x00, 1)
    assert sed.io().read(256, 1).status == 0, "only a power cycle locks this range"


def lock_on_reset(host: Initiator, events: list[Value]) -> None:
    with OpalSession(host, uids.LOCKING_SP, uids.ADMIN_AUTHORITIES[0], OWNER) as session:
        session.set(uids.LOCKING_ROWS[1], {9: events})


def set_configuration(admin: Initiator, value: int) -> None:
    assert admin.run(0x7F, 0x00, cdw11=0x14, cdw12=value).status == 0


@pytest.mark.parametrize("events", [[0], [0, 1]])
def test_disabling_a_controller_is_a_reset(
    sed: Drive, ranged: Initiator, events: list[Value]
) -> None:
    lock_on_reset(ranged, events)
    queue = sed.io()
    for value in (0x460000, 0x460001, 0x464001):  # as at a start, and a shutdown
        set_configuration(ranged, value)
        assert queue.read(256, 1).status == 0
    set_configuration(ranged, 0x460000)
    assert queue.read(256, 1).status == (DNR | 0x286 if 1 in events else 0)


@pytest.mark.parametrize("events", [[0], [0, 1]])
def test_losing_a_controller_is_a_reset(sed: Drive, ranged: Initiator, events: list[Value]) -> None:
    other = sed.connect()
    lock_on_reset(ranged, events)
    queue = sed.io()
    other.close()
    expected = DNR | 0x286 if 1 in events else 0
    until(lambda: queue.read(256, 1).status == expected)


# The control socket and its command line.


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"command": "status", "x": 1}, "takes no parameters, not x"),
        (
            {"command": "explode"},
            "fault, measure-power, power-cycle, stats, status, vices, warm-reset",
        ),
        ({"command": "fault"}, "there is no fault None; known are"),
        ({"command": "fault", "name": ["a"]}, "known are"),
    ],
)
def test_a_wrong_command_gets_a_sentence(
    plain: Drive, request_: dict[str, Any], sentence: str
) -> None:
    answer = plain.ask(**request_)
    assert answer["ok"] is False and sentence in answer["error"]


def command_line(drive: Drive, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "drive.control", str(drive.path("control")), *words]
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )


def test_people_have_a_command_line(plain: Drive) -> None:
    added = command_line(plain, "fault", "media-error", "--set", "lba=0x10")
    assert (added.returncode, added.stderr) == (0, "")
    assert in_force(plain) == [{"name": "media-error", "lba": 16, "blocks": 1, "left": 0}]
    wrong = command_line(plain, "fault", "media-error")
    assert wrong.returncode == 1 and wrong.stderr.startswith("fde: the fault media-error takes lba")
    plain.kill()
    gone = command_line(plain, "status")
    assert gone.returncode == 1 and gone.stderr.startswith("fde: no drive answers at")
    assert wrong.stderr.count("\n") == gone.stderr.count("\n") == 1
    plain.start()
