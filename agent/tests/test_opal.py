"""What a self-encrypting drive refuses, by its causes; a stand-in answers for the kernel."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.storage import msid, opal, opal_ioctl, secrets
from agent.storage.base import Place
from agent.storage.opal_ioctl import (
    LOCKED_OUT,
    NO_SESSIONS,
    NOT_AUTHORISED,
    SILENT,
    SP_BUSY,
    Discovery,
    Geometry,
    OpalError,
    RangeStatus,
    Sid,
    Status,
)
from agent.storage.secrets import PinTriesError
from agent.system.command import CommandError, Output
from agent.tests.builders import FRESH, OWNED, SECRETS
from contract.errors import AgentError
from contract.plan import Disk, Extent
from drive.opal.tper import Tper
from drive.tests.opal_host import Direct
from drive.vices import Vices
from instrumentation import nvme

DEVICE = "/dev/null"
PLACE = Place(Disk("sed", "/dev/disk/by-id/x", "S1", 2**31), DEVICE, 1, Extent(2**24, 2**30))
LOCKING = RangeStatus(0, 1, True, True, "locked")
HEADER = opal.LuksSegment("hw-opal", str(2**24), str(2**30))
Answers = Callable[[int], list[int]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Answers:
    """Has every Opal call end with a TCG status; the list of calls grows by one for each."""

    def answer(status: int) -> list[int]:
        calls: list[int] = []

        def ioctl(_fd: int, request: int, *_: object) -> int:
            calls.append(request)
            return status

        monkeypatch.setattr("agent.storage.opal_ioctl.fcntl.ioctl", ioctl)
        return calls

    monkeypatch.setattr(secrets, "PLACE", tmp_path / "pin-tries.json")
    monkeypatch.setattr(opal_ioctl, "_refused", {})
    return answer


def _raised(do: Callable[[], object]) -> OpalError:
    with pytest.raises(OpalError) as raised:
        do()
    return raised.value


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (NOT_AUTHORISED, "not-authorised"),
        (LOCKED_OUT, "locked-out"),
        (SP_BUSY, "no-session"),
        (NO_SESSIONS, "no-session"),
        (0x0C, "status"),
    ],
)
def test_a_tcg_status_has_its_code(answers: Answers, status: int, cause: str) -> None:
    answers(status)
    error = _raised(lambda: opal_ioctl.take(DEVICE, b"pin"))
    assert (error.code, error.status, error.number) == (cause, status, 0)
    assert (error.facts["device"], error.facts["action"]) == (DEVICE, "accept its owner's PIN")


def test_a_refusing_kernel_and_a_missing_device_have_codes(tmp_path: Path) -> None:
    error = _raised(lambda: opal_ioctl.status(DEVICE))
    assert (error.code, error.facts["error"]) == ("kernel", "Inappropriate ioctl for device")
    assert opal_ioctl.find_status(DEVICE) is None
    assert _raised(lambda: opal_ioctl.status(str(tmp_path / "none"))).code == "not-opened"


@pytest.mark.parametrize("returned", [0x13, 0x371, 0x4002, "EIO", "EINTR", "EINVAL", "nothing"])
def test_a_missing_answer_is_neither_refusal_nor_denial(
    returned: int | str, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that is lost shows in errors, in NVMe's statuses, and in flags that stay zero."""

    def ioctl(*_: object) -> int:
        if isinstance(returned, str) and returned != "nothing":
            raise OSError(getattr(errno, returned), returned)
        return 0 if isinstance(returned, str) else returned

    answers(0)
    monkeypatch.setattr("agent.storage.opal_ioctl.fcntl.ioctl", ioctl)
    asked = [opal_ioctl.status, opal_ioctl.find_status, opal_ioctl.discover]
    tried: list[Callable[[str], object]] = [
        lambda device: opal_ioctl.take(device, b"pin"),
        lambda device: opal_ioctl.revert(device, b"pin"),
        lambda device: opal.take(device, SECRETS, None),
    ]
    if returned == "EINVAL":  # so an old kernel answers these; to the others it is an empty answer
        assert opal_ioctl.find_status(DEVICE) is None
        assert opal_ioctl.discover(DEVICE) == SILENT
        asked = []
    for do in [*asked, *(tried if returned != "nothing" else [])]:
        error = _raised(lambda do=do: do(DEVICE))  # type: ignore[misc]
        assert (error.unanswered, error.status) == (True, 0)
    assert secrets.login(DEVICE, secrets.SID).refused == 0


def test_an_unreadable_msid_counts_as_no_try(answers: Answers) -> None:
    calls = answers(NOT_AUTHORISED)
    with pytest.raises(opal.NotTakenError) as refused:
        opal.take(DEVICE, SECRETS, Sid(taken=False, blocked=False))
    assert (refused.value.code, len(calls)) == ("no-msid", 1)
    assert secrets.login(DEVICE, secrets.SID).refused == 0
    with pytest.raises(opal.NotTakenError):  # not reported, it may have an owner
        opal.take(DEVICE, SECRETS, None)
    assert secrets.login(DEVICE, secrets.SID).refused == 2


def _exchange(tper: Tper, com_id: int, data: bytes) -> bytes:
    assert not data or tper.send(1, 1, com_id, data)
    return (tper.receive(1, 1, com_id, 2048) or b"").ljust(2048, b"\0")


@pytest.mark.parametrize("unreadable", [False, True])
def test_the_msid_is_read_without_a_pin(tmp_path: Path, unreadable: bool) -> None:
    tper = Direct.make(tmp_path)
    tper.set_vices(Vices(msid_unreadable=unreadable))
    for _ in range(2):  # the only session is ended
        assert msid.refused(partial(_exchange, tper)) == unreadable
    assert not tper.status()["session"]
    assert not msid.is_refused(DEVICE)


def test_a_cut_answer_leaves_no_session_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tper, asked = Direct.make(tmp_path), []

    def exchange(com_id: int, data: bytes) -> bytes:
        asked.append(com_id)
        if len(asked) == 3:
            assert tper.send(1, 1, com_id, data)
            raise OSError(errno.EIO, "")
        return _exchange(tper, com_id, data)

    with pytest.raises(OSError):
        msid.refused(exchange)
    assert not tper.status()["session"]

    def ask(_file: object, code: int, _namespace: int, head: int, *_: int, **__: object) -> bytes:
        page = tper.receive(1, 1, 1, 2048) if head >> 8 & 0xFFFF == 1 else None
        return page or bytes(55) + b"\x01\xf0" + bytes(99) if code == 0x82 else b""

    monkeypatch.setattr(nvme, "ask", ask)
    assert not msid.is_refused(DEVICE)


PSID = "0123456789ABCDEFGHIJKLMNOPQRSTUV"


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, None),
        ({"sed_psid": ""}, None),
        ({"sed_psid": PSID.lower()}, None),
        ({"sed_psid": "-".join(PSID[n : n + 4] for n in range(0, 32, 4))}, None),
        ({"sed_psid": f"  {PSID[:16]} {PSID[16:]}\t"}, None),
        ({"sed_psid": PSID[1:]}, "psid-form"),
        ({"sed_psid": PSID + "0"}, "psid-form"),
        ({"sed_psid": PSID[1:] + "Ä"}, "psid-form"),
        ({"sed_psid": PSID[1:] + "_"}, "psid-form"),
        ({"sed_psid": int("1" * 32)}, "not-line"),
        ({"opal_admin_pin": "p" * 32}, None),
        ({"opal_admin_pin": "p" * 33}, "long-pin"),
        ({"opal_admin_pin": "ä" * 17}, "long-pin"),
        ({"opal_admin_pin": "pin\r"}, "not-line"),
        ({"opal_admin_pin": "pin\0"}, "not-line"),
        ({"luks_passphrase": "two\nlines"}, "not-line"),
    ],
)
def test_malformed_secrets_are_refused_before_any_try(
    tmp_path: Path, changes: dict[str, Any], cause: str | None
) -> None:
    path = tmp_path / "secrets.json"
    fields = {"luks_passphrase": "p", "opal_admin_pin": "q", "sed_psid": PSID, **changes}
    path.write_text(json.dumps(fields), encoding="utf-8")
    path.chmod(0o600)
    if cause is None:
        assert secrets.load(path).sed_psid == (PSID.encode() if fields["sed_psid"] else None)
        return
    with pytest.raises(secrets.SecretsError) as refused:
        secrets.load(path)
    assert refused.value.code == cause
    assert not any(str(fields[name]) in str(refused.value) for name in changes)


def test_a_wrong_pin_is_counted_and_not_repeated(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = answers(NOT_AUTHORISED)
    for refused in range(1, secrets.MOST + 1):
        error = _raised(lambda: opal_ioctl.range_status(DEVICE, 1, b"pin"))
        assert (error.code, error.facts["refused"]) == ("wrong-pin", refused)
        assert "fde teardown --psid-revert " in str(error)
        assert _raised(lambda: opal_ioctl.range_status(DEVICE, 1, b"pin")) is error
        monkeypatch.setattr(opal_ioctl, "_refused", {})  # as in the next process
    with pytest.raises(PinTriesError) as stopped:
        opal_ioctl.range_status(DEVICE, 1, b"pin")
    assert stopped.value.facts["refused"] == secrets.MOST == len(calls)
    assert "so nothing was tried" in str(stopped.value)


def test_a_locked_out_drive_adds_no_refusal(answers: Answers) -> None:
    answers(LOCKED_OUT)
    error = _raised(lambda: opal_ioctl.unlock(DEVICE, 1, b"pin"))
    assert (error.code, error.facts["refused"]) == ("no-tries", 0)


def _failed(code: int) -> CommandError:
    return CommandError("program-failed", program="cryptsetup", exit_code=code, reason="")


UNREAD = CommandError("header-unread", partition="", error="")
SILENT_RANGE = OpalError("status", device="x", action="answer", status=NO_SESSIONS)


@pytest.mark.parametrize("error", [_failed(4), UNREAD, SILENT_RANGE])
def test_an_unreadable_header_is_not_made_again(
    error: AgentError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where the drive does not answer: that is no reason to format what it has."""

    def fail(*_: object) -> Any:
        raise error

    header = opal.LuksHeader({"0": HEADER})
    monkeypatch.setattr(opal_ioctl, "status", lambda _: OWNED)
    monkeypatch.setattr(opal, "luks_header", (lambda _: header) if error is SILENT_RANGE else fail)
    monkeypatch.setattr(opal_ioctl, "range_status", fail)
    monkeypatch.setattr(opal, "run", lambda *_, **__: Output(0, "", ""))
    with pytest.raises(AgentError) as refused:
        opal.why_not_ready(PLACE, SECRETS)
    assert refused.value is error


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, None),
        ({"status": FRESH}, opal.NotReady.LOCKING_OFF),
        ({"header": replace(HEADER, offset="0")}, opal.NotReady.OTHER_RANGE),
        ({"header": _failed(1)}, opal.NotReady.NO_HEADER),
        ({"found": replace(LOCKING, write_lock_enabled=False)}, opal.NotReady.NO_LOCKS),
    ],
)
def test_the_missing_part_of_a_provisioned_drive_is_named(
    changes: dict[str, Any], cause: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = {"status": OWNED, "header": HEADER, "found": LOCKING, **changes}

    def luks_header(_partition: str) -> opal.LuksHeader:
        if isinstance(reports["header"], Exception):
            raise reports["header"]
        return opal.LuksHeader({"0": reports["header"]})

    monkeypatch.setattr(opal_ioctl, "status", lambda _: reports["status"])
    monkeypatch.setattr(opal_ioctl, "range_status", lambda *_: reports["found"])
    monkeypatch.setattr(opal, "luks_header", luks_header)
    monkeypatch.setattr(opal, "run", lambda *_, **__: Output(0, "", ""))
    assert opal.why_not_ready(PLACE, SECRETS) == cause


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (FRESH, "not-owned"),
        (replace(OWNED, mbr_enabled=True), "shadowed"),
        (OWNED, "not-formatted"),
    ],
)
def test_a_drive_that_cannot_lock_has_a_code(
    answers: Answers, status: Status, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> Output:
        raise _failed(2)

    answers(0)
    monkeypatch.setattr(opal_ioctl, "status", lambda _: status)
    monkeypatch.setattr(opal, "run", failing)
    error = _raised(lambda: opal.make_range(PLACE, SECRETS))
    assert error.code == cause
    assert (cause == "shadowed") == ("--psid-revert S1" in str(error))
    assert _raised(lambda: opal.disown(DEVICE, SECRETS, by_psid=True)).code == "no-psid"


def test_a_discovery_of_any_length_is_parsed(tmp_path: Path) -> None:
    tper = Direct.make(tmp_path, block_sid_feature=True)

    def page() -> bytes:
        return tper.receive(1, 1, 1, 2048) or b""

    assert opal_ioctl.parse_discovery(page()) == Discovery(
        Sid(False, False), Geometry(4096, 1, 0), True
    )
    tper.block_sid()
    tper.set_vices(
        Vices(opal_block_bytes=512, alignment_blocks=8, lowest_lba=3, no_media_encryption=True)
    )
    complete = Discovery(Sid(False, True), Geometry(512, 8, 3), False)
    assert opal_ioctl.parse_discovery(page()) == complete
    cut = [opal_ioctl.parse_discovery(page()[:length]) for length in range(len(page()))]
    assert cut[0] == SILENT and cut[-1].geometry == complete.geometry
