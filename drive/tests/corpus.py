"""What our own host says to a drive: the messages that the fuzzer changes."""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from drive.initiator import Initiator
from drive.nvme_tcp import COMMON, PDU_COMMAND
from drive.opal import uids
from drive.opal.packets import COM_ID, Named, PacketError, unpack
from drive.tests.opal_host import OWNER, USER2, OpalSession, lock, own_with_range
from drive.tests.process import PSID, Drive
from drive.tests.wire import record

_OF_A_KIND = 4
_KIND_BYTES = 19  # of a call: its token, object and method
_BEGIN, _COMMIT, _ABORT = b"\xfb\x00", b"\xfc\x00", b"\xfc\x01"
_SECURITY_SEND, _FABRICS = 0x81, 0x7F


@dataclass
class Corpus:
    """Payloads of Security Send with protocol and ComID, calls in them, and commands by queue."""

    packets: list[tuple[int, int, bytes]] = field(default_factory=list)
    calls: list[bytes] = field(default_factory=list)
    admin: list[bytes] = field(default_factory=list)
    io: list[bytes] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)  # ICReq, and data that were asked for
    _kinds: Counter[bytes] = field(default_factory=Counter)

    def add(self, pdu: bytes, queue: list[bytes]) -> None:
        """Sort one PDU in, unless there are enough of its kind."""
        if pdu[0] != PDU_COMMAND:
            self.others.append(pdu)
            return
        kind, data, call = pdu[8:9] + pdu[12:13] * (pdu[8] == _FABRICS), b"", b""
        if pdu[8] == _SECURITY_SEND:
            data = pdu[72:].rstrip(b"\0") + bytes(8)
            with contextlib.suppress(PacketError):
                call = unpack(data).payload
            kind = call[:_KIND_BYTES] or data
        self._kinds[kind] += 1
        if self._kinds[kind] > _OF_A_KIND:
            return
        if not data:
            queue.append(pdu)
            return
        (address,) = struct.unpack_from("<I", pdu, 8 + 40)
        self.packets.append((address >> 24, address >> 8 & 0xFFFF, data))
        self.calls += [call] if call else []


@cache
def recorded() -> Corpus:
    """Record the corpus from a running drive."""
    corpus = Corpus()
    with tempfile.TemporaryDirectory() as folder, record() as sent:
        drive = Drive(Path(folder), opal=True, block_bytes=512)
        drive.start()
        _talk_opal(drive.connect())
        admin = drive.connect()
        connection = {"queue_id": 1, "controller_id": admin.controller_id}
        _talk_nvme(admin, drive.connect(**connection, in_capsule_bytes=1024))
        drive.stop()
    for stream in map(bytes, sent):
        while stream:
            length = COMMON.unpack_from(stream)[4]
            corpus.add(stream[:length], corpus.io if sent[-1].endswith(stream) else corpus.admin)
            stream = stream[length:]  # noqa: PLW2901 - what is left of it
    return corpus


def _talk_opal(host: Initiator) -> None:
    """Every method on some table, as hosts call them between the factory and the revert."""
    admin1, row, key = uids.ADMIN_AUTHORITIES[0], uids.LOCKING_ROWS[1], uids.key_rows(256)[1]
    locking_table = uids.uid(0x0000080200000000)
    for protocol, com_id, data in (
        (2, COM_ID, struct.pack(">HHI", COM_ID, 0, 1)),
        (2, COM_ID, struct.pack(">HHI", COM_ID, 0, 2)),
        (2, 0x0004, b""), (2, 0x0005, b"\x01"),
    ):  # fmt: skip
        host.security_send(protocol, com_id, data.ljust(512, b"\0"))
        host.security_receive(protocol, com_id, 512)
    with OpalSession(host, uids.ADMIN_SP) as session:
        session.properties({b"MaxComPacketSize": 2048})
        session.call(uids.THIS_SP, uids.RANDOM, 32)
    own_with_range(host)
    lock(host, USER2, 1)
    with OpalSession(host, uids.LOCKING_SP) as session:
        session.call(uids.THIS_SP, uids.AUTHENTICATE, admin1, Named(0, OWNER))
        session.call(row, uids.GET, [Named(3, 0), Named(4, 10)])
        session.call(locking_table, uids.NEXT, Named(0, row), Named(1, 2))
        session.call(uids.ACCESS_CONTROL, uids.GET_ACL, row, uids.GET)
        session.call(key, uids.GEN_KEY)
        session.raw(_BEGIN)
        session.set(row, {9: [0, 3]})
        session.raw(_ABORT)
        for table in (uids.MBR, uids.DATA_STORE):
            session.call(table, uids.SET, Named(0, 16), Named(1, b"pre-boot" * 8))
            session.call(table, uids.GET, [Named(1, 0), Named(2, 63)])
        session.raw(_BEGIN)
        session.set(uids.MBR_CONTROL, {1: 0, 2: 1})
        session.raw(_COMMIT)
    with OpalSession(host, uids.LOCKING_SP, admin1, OWNER) as session:
        session.call(uids.THIS_SP, uids.REVERT_SP, Named(0x060000, 1))
    with OpalSession(host, uids.ADMIN_SP, uids.PSID, PSID) as session:
        session.call(uids.ADMIN_SP, uids.REVERT)


def _talk_nvme(admin: Initiator, queue: Initiator) -> None:
    """Every command that the drive knows."""
    for register in (0x00, 0x08, 0x1C):
        admin.run(0x7F, 0x04, cdw10=int(register == 0), cdw11=register)
    for value in (0x460000, 0x460001):
        admin.run(0x7F, 0x00, cdw11=0x14, cdw12=value)
    for cns in (0, 1, 2, 3):
        admin.identify(cns, nsid=int(cns in (0, 3)))
    for page in (1, 2, 3):
        admin.run(0x02, 0xFFFFFFFF, read_bytes=512, cdw10=127 << 16 | page)
    admin.run(0x09, cdw10=0x07, cdw11=0x00070007)
    admin.run(0x0A, cdw10=0x07)
    admin.run(0x08)
    admin.run(0x18)
    admin.security_receive(1, 1)
    queue.write(1, b"in capsule".ljust(512), 512)
    queue.write(2, b"asked for".ljust(2048), 512)
    queue.read(1, 3, 512)
    queue.run(0x08, 1, cdw10=8, cdw12=7)
    queue.run(0x09, 1, struct.pack("<IIQ", 0, 8, 16), cdw11=4)
    queue.run(0x00, 1)
