"""ComPacket, Packet and data SubPacket (TCG Core 2.01, section 3.2.3)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

COM_ID = 0x0800  # the first of the vendor's own (Opal 2.01, section 3.3.3)
MAX_COM_PACKET_BYTES = 65536
_COM = struct.Struct(">4xHHIII")
_PACKET = struct.Struct(">IIIHHII")
_SUB = struct.Struct(">6xHI")
_HEADERS_BYTES = _COM.size + _PACKET.size + _SUB.size
MAX_TABLE_READ_BYTES = MAX_COM_PACKET_BYTES - _HEADERS_BYTES - 64  # room for the tokens around


class PacketError(Exception):
    """The payload is not a ComPacket with one packet and one data subpacket."""


@dataclass(frozen=True)
class Message:
    """The tokens of one packet and the session that they belong to (0, 0: session manager)."""

    tper_session: int
    host_session: int
    payload: bytes


def unpack(data: bytes) -> Message:
    """Reads a ComPacket; what follows its declared length is padding. Raises PacketError."""
    if len(data) < _HEADERS_BYTES:
        raise PacketError("shorter than its headers")
    com_id, extension, _, _, com_bytes = _COM.unpack_from(data)
    if (com_id, extension) != (COM_ID, 0):
        raise PacketError(f"unknown ComID {com_id:#06x}")
    tper, host, _, _, _, _, packet_bytes = _PACKET.unpack_from(data, _COM.size)
    kind, sub_bytes = _SUB.unpack_from(data, _COM.size + _PACKET.size)
    room = min(len(data) - _COM.size, com_bytes) - _PACKET.size
    if packet_bytes > room or kind != 0 or sub_bytes > packet_bytes - _SUB.size:
        raise PacketError("lengths do not fit into each other")
    return Message(tper, host, data[_HEADERS_BYTES : _HEADERS_BYTES + sub_bytes])


def pack(message: Message) -> bytes:
    """A whole ComPacket; nothing is outstanding after it."""
    sub = _SUB.pack(0, len(message.payload)) + message.payload
    sub += bytes(-len(sub) % 4)
    packet = _PACKET.pack(message.tper_session, message.host_session, 0, 0, 0, 0, len(sub)) + sub
    return _COM.pack(COM_ID, 0, 0, 0, len(packet)) + packet


def pack_empty(outstanding_bytes: int = 0) -> bytes:
    """A ComPacket without content: nothing to fetch, or `outstanding_bytes` in a larger buffer."""
    return _COM.pack(COM_ID, 0, outstanding_bytes, outstanding_bytes, 0)
