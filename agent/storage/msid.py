"""Detection of drives that refuse to show their first PIN, the MSID.

The kernel returns the same status for a refused read of the MSID, which is no login, and for a
login that the drive refused and counts. So the MSID is read once more, with no PIN (TCG Storage
Architecture Core Specification 2.01, 3.2 and 5.2.3; Opal SSC 2.01, 4.2.1.8).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from instrumentation import nvme

_SEND, _RECEIVE, _PROTOCOL, _BYTES = 0x81, 0x82, 0x01, 2048
_DISCOVERY, _OPAL_FEATURES = 0x0001, (0x0203, 0x0200)
_COM_PACKET, _PACKET, _SUBPACKET = struct.Struct(">4xHHIII"), struct.Struct(">II12xI"), 12
_HOST = b"\x81\x41"  # the number that the host gives a session
_START = bytes.fromhex("f8a800000000000000ffa8000000000000ff02f08141a8000002050000000101f1")
_GET = bytes.fromhex("f8a80000000b00008402a80000000600000016f0f0f20303f3f20403f3f1f1")
_END_OF_CALL, _END_OF_SESSION = bytes.fromhex("f9f0000000f1"), b"\xfa"

# Security Send of these bytes to a ComID if there are any, then Security Receive.
Exchange = Callable[[int, bytes], bytes]


def is_refused(device: str) -> bool:
    """Return whether an NVMe drive refuses to show the MSID; False if that is unknown."""
    try:
        with Path(device).open("rb", buffering=0) as file:

            def exchange(com_id: int, data: bytes) -> bytes:
                head = _PROTOCOL << 24 | com_id << 8
                if data:
                    nvme.ask(file, _SEND, 0, head, _BYTES, cdw11=_BYTES, data=data)
                return nvme.ask(file, _RECEIVE, 0, head, _BYTES, cdw11=_BYTES)

            return refused(exchange)
    except (OSError, ValueError, IndexError, struct.error):
        return False


def refused(exchange: Exchange) -> bool:
    """Return whether the drive refuses to give its MSID.

    Raises ValueError, IndexError or struct.error for an answer that cannot be parsed.
    """
    com_id = _com_id(exchange(_DISCOVERY, b""))
    started = _payload(exchange(com_id, _pack(com_id, 0, _START + _END_OF_CALL)))
    at = started.index(b"\xf0") + 1 + len(_HOST)
    length = started[at] & 0x0F if started[at] & 0x80 else 0  # a short atom, else a tiny one
    session = int.from_bytes(started[at + 1 : at + 1 + length]) if length else started[at]
    try:
        answer = _payload(exchange(com_id, _pack(com_id, session, _GET + _END_OF_CALL)))
    finally:
        exchange(com_id, _pack(com_id, session, _END_OF_SESSION))
    return answer[answer.rindex(b"\xf9\xf0") + 2] != 0


def _com_id(page: bytes) -> int:
    at = 48
    while at + 6 <= len(page):
        code, length = struct.unpack_from(">HxB", page, at)
        if code in _OPAL_FEATURES:
            return int.from_bytes(page[at + 4 : at + 6])
        at += 4 + length
    raise ValueError("no Opal")


def _pack(com_id: int, session: int, tokens: bytes) -> bytes:
    padded = tokens + bytes(-len(tokens) % 4)
    subpacket = struct.pack(">8xI", len(tokens)) + padded
    packet = _PACKET.pack(session, 0x41 if session else 0, len(subpacket)) + subpacket
    return (_COM_PACKET.pack(com_id, 0, 0, 0, len(packet)) + packet).ljust(_BYTES, b"\0")


def _payload(page: bytes) -> bytes:
    head = _COM_PACKET.size + _PACKET.size
    length = int.from_bytes(page[head + 8 : head + _SUBPACKET])
    return page[head + _SUBPACKET : head + _SUBPACKET + length]
