"""The seed corpus: what our own host says to a drive, a message a file, in hexadecimal.

    python -m drive.tests.corpus    records it again from a real drive into tests/seeds/

`pdu-*.hex` are whole NVMe/TCP PDUs. `packet-*.hex` are payloads of Security Send, without padding;
their first line has security protocol and ComID.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from drive.initiator import Completion, Initiator
from drive.nvme_tcp import COMMON, PDU_COMMAND, PDU_H2C_DATA, PDU_ICREQ
from drive.opal import uids
from drive.opal.calls import method_name, parse_call
from drive.opal.packets import COM_ID, Named, PacketError, TokenError, decode, unpack
from drive.opal.schema import name_of
from drive.tests.opal_host import OWNER, USER2, OpalSession, lock, set_up_range, take_ownership
from drive.tests.process import NQN, PSID, Drive
from drive.tests.wire import record

FOLDER = Path(__file__).with_name("seeds")
_OF_A_KIND = 4
_BEGIN, _COMMIT, _ABORT = b"\xfb\x00", b"\xfc\x00", b"\xfc\x01"


@dataclass(frozen=True)
class Packet:
    """What one Security Send carries."""

    name: str
    protocol: int
    com_id: int
    data: bytes


def packets() -> list[Packet]:
    """Return the corpus's payloads of Security Send."""
    payloads = []
    for path in sorted(FOLDER.glob("packet-*.hex")):
        head, _, body = path.read_text().partition("\n")
        protocol, com_id = (int(word, 16) for word in head.split())
        payloads.append(Packet(path.stem, protocol, com_id, bytes.fromhex(body)))
    return payloads


def pdus() -> dict[str, bytes]:
    """Return the corpus's PDUs by name."""
    return {
        path.stem.removeprefix("pdu-"): bytes.fromhex(path.read_text())
        for path in sorted(FOLDER.glob("pdu-*.hex"))
    }


class _Noting(Initiator):
    """Keeps what it sends through Security Send."""

    noted: list[tuple[int, int, bytes]]

    def security_send(self, protocol: int, specific: int, data: bytes) -> Completion:
        self.noted.append((protocol, specific, data.rstrip(b"\0") + bytes(8)))
        return super().security_send(protocol, specific, data)


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
    take_ownership(host, OWNER)
    set_up_range(host, OWNER, 1, (256, 256), USER2)
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


def _name_packet(protocol: int, com_id: int, data: bytes) -> str:
    try:
        payload = unpack(data).payload
        call = parse_call(decode(payload))
    except PacketError:
        return f"protocol-{protocol}-{com_id:04x}-{data[7:8].hex()}"
    except TokenError:
        return f"tokens-{payload.hex()}"
    if call.invoking == uids.SESSION_MANAGER:
        return "Properties" if call.method == uids.PROPERTIES else "StartSession"
    return f"{method_name(call.method)}-{name_of(call.invoking)}"


def _split(stream: bytes) -> Iterator[bytes]:
    while stream:
        length = COMMON.unpack_from(stream)[4]
        yield stream[:length]
        stream = stream[length:]


_COMMANDS = {
    0x00: "flush", 0x01: "write", 0x02: "read", 0x08: "zeroes", 0x09: "dataset", 0x7F: "fabrics",
}  # fmt: skip


def _name_pdu(pdu: bytes, admin: bool) -> str:
    if pdu[0] != PDU_COMMAND:
        return {PDU_ICREQ: "icreq", PDU_H2C_DATA: "io-data"}[pdu[0]]
    if admin:
        return f"admin-{pdu[8]:02x}" + (f"-{pdu[12]:02x}" if pdu[8] == 0x7F else "")
    return f"io-{_COMMANDS[pdu[8]]}" + ("" if len(pdu) == 72 or pdu[8] != 1 else "-capsule")


def _write(kind: str, name: str, number: int, head: str, data: bytes) -> None:
    lines = textwrap.wrap(data.hex(), 96)
    path = FOLDER / f"{kind}-{name}-{number}.hex"
    path.write_text("\n".join([*([head] if head else []), *lines]) + "\n")


def main() -> int:
    """Record the corpus; returns the exit status."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.hex"):
        old.unlink()
    numbers: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        drive = Drive(Path(folder), opal=True, block_bytes=512)
        drive.start()
        host = _Noting(drive.port, NQN)
        host.noted = []
        _talk_opal(host)
        with record() as sent:
            admin = drive.connect()
            queue = drive.connect(
                queue_id=1, controller_id=admin.controller_id, in_capsule_bytes=1024
            )
            _talk_nvme(admin, queue)
        for at, stream in enumerate(sent):
            for pdu in _split(bytes(stream)):
                name = _name_pdu(pdu, admin=at == 0)
                numbers[name] += 1
                _write("pdu", name, numbers[name], "", pdu)
        host.close()
        drive.stop()
    for protocol, com_id, data in dict.fromkeys(host.noted):
        name = _name_packet(protocol, com_id, data)
        numbers[name] += 1
        if numbers[name] > _OF_A_KIND:
            continue
        _write("packet", name, numbers[name], f"{protocol:x} {com_id:04x}", data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
