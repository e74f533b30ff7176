"""Hosts that vanish, hang, crowd or quarrel: the others are served, nobody stays logged in."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

from drive.nvme_tcp import COMMON, IC
from drive.opal import uids
from drive.opal.calls import encode_call
from drive.opal.packets import COM_ID, Message, Named, pack
from drive.opal.uids import Status
from drive.server import MAX_CONNECTIONS
from drive.tests.opal_host import (
    OWNER,
    USER2,
    OpalSession,
    RefusedError,
    lock,
    msid,
    own_with_range,
    refused,
    take_ownership,
)
from drive.tests.process import HANG_S, Drive, until
from drive.tests.wire import connect_pdus, record

ADMIN1 = uids.ADMIN_AUTHORITIES[0]
ICREQ = IC.pack(0, 0, 128, 0, 128, 0, 0, 0, 0)


def free(drive: Drive) -> bool:
    """Whether a session can be opened now, which needs that nobody has one."""
    host = drive.connect()
    try:
        OpalSession(host, uids.ADMIN_SP).raw(b"\xfa")
    except RefusedError as error:
        assert error.status == Status.NO_SESSIONS_AVAILABLE
        return False
    finally:
        host.close()
    return True


@contextlib.contextmanager
def raw(drive: Drive) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", drive.port), timeout=HANG_S) as sock:
        yield sock


def vanish(sock: socket.socket, reset: bool) -> None:
    """Close with FIN, or at once with RST."""
    if reset:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_a_login_may_break_off_after_every_byte(sed: Drive, thorough: bool) -> None:
    host = sed.connect()
    take_ownership(host, OWNER)
    with record() as sent, OpalSession(sed.connect(), uids.LOCKING_SP, ADMIN1, OWNER):
        login = bytes(sent[0])
    assert login.startswith(ICREQ) and OWNER in login and len(login) > 3000
    before, status = sed.path("state.json").read_bytes(), sed.ask("status")
    # The first and the last ones, and those between them: all, or each 17th (odd: both ways to go).
    between = range(4, len(login) - 3, 1 if thorough else 17)
    for count in (*range(4), *between, *range(len(login) - 3, len(login) + 1)):
        with raw(sed) as sock:
            with contextlib.suppress(OSError):  # once it is told what is wrong
                sock.sendall(login[:count])
            vanish(sock, reset=bool(count % 2))
        if count % 17 == 4:
            until(lambda: sed.proc("Threads") < 12)
        if count % 510 == 4 or count > len(login) - 4:
            until(lambda: free(sed))
    until(lambda: free(sed))
    assert sed.path("state.json").read_bytes() == before
    assert sed.ask("status") == status
    assert "refused: 64 are open" not in sed.log(), "each of them was served"
    until(lambda: sed.proc("Threads") < 12)


def test_two_hosts_never_receive_each_others_answers(sed: Drive) -> None:
    first, second = sed.connect(), sed.connect()
    take_ownership(first, OWNER)
    factory = msid(second)
    for turn in range(20):
        writer, reader = (first, second) if turn % 2 else (second, first)
        with OpalSession(writer, uids.ADMIN_SP) as session:
            get = encode_call(uids.C_PIN_MSID, uids.GET, [[Named(3, 3), Named(4, 3)]])
            packet = pack(Message(session.tper_number, session.host_number, get))
            assert writer.security_send(1, COM_ID, packet).status == 0
            assert refused(OpalSession, reader, uids.ADMIN_SP) == Status.NO_SESSIONS_AVAILABLE
            assert factory not in reader.security_receive(1, COM_ID).data
            assert factory in writer.security_receive(1, COM_ID).data
    OpalSession(first, uids.LOCKING_SP, ADMIN1, OWNER)
    assert refused(OpalSession, second, uids.ADMIN_SP) == Status.NO_SESSIONS_AVAILABLE
    first.close()
    until(lambda: free(sed))


def test_a_session_cannot_be_used_from_another_connection(sed: Drive) -> None:
    owner, thief = sed.connect(), sed.connect()
    own_with_range(owner)
    lock(owner, USER2, 1)
    before = sed.path("state.json").read_bytes()
    session = OpalSession(owner, uids.LOCKING_SP, ADMIN1, OWNER)
    unlock = encode_call(uids.LOCKING_ROWS[1], uids.SET, [Named(1, [Named(7, 0), Named(8, 0)])])
    for payload in (unlock, b"\xfa", b"\xf0"):
        packet = pack(Message(session.tper_number, session.host_number, payload))
        thief.security_send(1, COM_ID, packet)
        assert not any(thief.security_receive(1, COM_ID).data[16:])
    assert sed.path("state.json").read_bytes() == before
    assert session.get(uids.LOCKING_INFO, 4, 4) == {4: 8}, "it is still open to its owner"
    session.raw(b"\xfa")


def test_hung_hosts_do_not_delay_others(sed: Drive) -> None:
    unread = [raw(sed) for _ in range(4)]
    with contextlib.ExitStack() as stack:
        half = stack.enter_context(raw(sed))
        half.sendall(ICREQ[:64])
        stack.enter_context(raw(sed))  # not even that
        queue = sed.io()
        for index, peer in enumerate(unread):
            sock = stack.enter_context(peer)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(ICREQ)
            sock.settimeout(0.5)
            with contextlib.suppress(OSError):
                for cid in range(20_000):  # commands whose answers it never reads
                    header = COMMON.pack(4, 0, 72, 0, 72)
                    sock.sendall(header + struct.pack("<BBHI56x", 0x55, 0x40, cid, index))
        for lba in range(50):
            assert queue.write(lba, bytes(4096)).status == queue.read(lba, 1).status == 0
        assert msid(sed.connect())
        assert sed.ask("status")["ok"]
        half.settimeout(HANG_S)
        assert half.recv(1) == b"", "who does not say who he is, is sent away"
    until(lambda: sed.proc("Threads") < 12)


def test_writes_that_are_announced_and_never_sent_do_not_pile_up(sed: Drive) -> None:
    with raw(sed) as sock:
        sock.sendall(connect_pdus(0, 0xFFFF))
        with contextlib.suppress(OSError):  # once it has been told that this is too much
            for cid in range(10_000):
                sqe = struct.pack("<BBHI24xI3xB24x", 0x81, 0x40, cid & 0x7FFF, 0, 1 << 20, 0x5A)
                sock.sendall(COMMON.pack(4, 0, 72, 0, 72) + sqe)
            while sock.recv(1 << 16):
                pass
    until(lambda: "more commands wait for data than the queue has entries" in sed.log())
    assert sed.proc("VmRSS") < 100 << 10
    assert msid(sed.connect())


def test_a_hung_control_client_does_not_delay_others(sed: Drive) -> None:
    with contextlib.ExitStack() as stack:
        for sent in (b"", b'{"command"', b"x" * 100_000):
            peer = stack.enter_context(socket.socket(socket.AF_UNIX))
            peer.settimeout(0.5)
            peer.connect(str(sed.path("control")))
            with contextlib.suppress(OSError):
                peer.sendall(sent)
        assert sed.ask("status")["ok"]
        assert msid(sed.connect())


def test_a_crowd_is_served_or_refused(sed: Drive) -> None:
    queue = sed.io()
    before_kib = sed.proc("VmRSS")
    with contextlib.ExitStack() as stack:
        answers = []
        crowd = []
        for _ in range(MAX_CONNECTIONS + 100):
            sock = stack.enter_context(raw(sed))
            with contextlib.suppress(OSError):
                sock.sendall(ICREQ)
            crowd.append(sock)
        for sock in crowd:
            try:
                answers.append(sock.recv(128)[:1])
            except OSError:
                answers.append(b"")
        served = answers.count(b"\x01")
        assert served == MAX_CONNECTIONS - 2, "admin and I/O queue were there before"
        assert answers.count(b"") == len(crowd) - served
        assert queue.read(0, 1).status == 0
        assert sed.ask("stats")["ok"]
        assert sed.proc("VmRSS") - before_kib < 96 << 10
    until(lambda: sed.proc("Threads") < 12)
    assert msid(sed.connect())
