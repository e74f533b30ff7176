"""Token stream of the TCG Storage Core Specification 2.01, section 3.2.2.3.

Values are ints, byte strings, lists (`[…]`) and `Named` pairs; control tokens are `Control`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

MAX_DEPTH = 16


class TokenError(Exception):
    """The bytes are not a token stream of this protocol."""


class Control(IntEnum):
    """Tokens of one byte that are not values."""

    START_LIST = 0xF0
    END_LIST = 0xF1
    START_NAME = 0xF2
    END_NAME = 0xF3
    CALL = 0xF8
    END_OF_DATA = 0xF9
    END_OF_SESSION = 0xFA
    START_TRANSACTION = 0xFB
    END_TRANSACTION = 0xFC
    EMPTY = 0xFF


@dataclass(frozen=True)
class Named:
    """A name and its value."""

    name: int | bytes
    value: Value


Value: TypeAlias = "int | bytes | list[Value] | Named"
Token: TypeAlias = int | bytes | Control
_CONTROLS = frozenset(Control)


def encode(value: Value | Control) -> bytes:
    """Encode one value as its shortest tokens; integers have at most 8 bytes."""
    if isinstance(value, Control):
        return bytes([value])
    if isinstance(value, int):
        return _encode_int(value)
    if isinstance(value, bytes):
        return _encode_bytes(value)
    if isinstance(value, Named):
        return b"\xf2" + encode(value.name) + encode(value.value) + b"\xf3"
    return b"\xf0" + b"".join(map(encode, value)) + b"\xf1"


def encode_all(values: Sequence[Value | Control]) -> bytes:
    """Encode several values one after the other."""
    return b"".join([encode(value) for value in values])


def _encode_int(value: int) -> bytes:
    if 0 <= value < 64:
        return bytes([value])
    if -32 <= value < 0:
        return bytes([0x40 | value & 0x3F])
    signed = value < 0
    bits = (value + 1 if signed else value).bit_length() + signed
    size = (bits + 7) // 8
    if size > 8:
        raise ValueError("an integer has at most 8 bytes")
    return bytes([0x80 | signed << 4 | size]) + value.to_bytes(size, "big", signed=signed)


def _encode_bytes(value: bytes) -> bytes:
    size = len(value)
    if size < 16:
        return bytes([0xA0 | size]) + value
    if size < 2048:
        return bytes([0xD0 | size >> 8, size & 0xFF]) + value
    return b"\xe2" + size.to_bytes(3, "big") + value


def decode(data: bytes) -> list[Token]:
    """Decode all tokens of a stream, without empty tokens. Raises TokenError."""
    tokens: list[Token] = []
    position = 0
    while position < len(data):
        first = data[position]
        if first < 0x80:
            tokens.append(first if first < 0x40 else (first & 0x3F ^ 0x20) - 0x20)
            position += 1
        elif first < 0xE4:
            header, size, is_bytes, signed = _atom_header(data, position)
            position += header
            if position + size > len(data):
                raise TokenError("an atom is longer than the data")
            atom = data[position : position + size]
            position += size
            if not is_bytes and size > 8:
                raise TokenError("an integer of more than 8 bytes")
            tokens.append(atom if is_bytes else int.from_bytes(atom, "big", signed=signed))
        elif first in _CONTROLS:
            if first != Control.EMPTY:
                tokens.append(Control(first))
            position += 1
        else:
            raise TokenError(f"reserved token {first:#04x}")
    return tokens


def _atom_header(data: bytes, position: int) -> tuple[int, int, bool, bool]:
    """Return header size, value size, whether it is bytes, whether it is signed."""
    first = data[position]
    if first < 0xC0:
        return 1, first & 0x0F, bool(first & 0x20), bool(first & 0x10)
    header = 2 if first < 0xE0 else 4
    if position + header > len(data):
        raise TokenError("an atom's header is cut off")
    if header == 2:
        return 2, (first & 7) << 8 | data[position + 1], bool(first & 0x10), bool(first & 8)
    size = int.from_bytes(data[position + 1 : position + 4], "big")
    return 4, size, bool(first & 2), bool(first & 1)


def parse(tokens: list[Token]) -> list[Value | Control]:
    """Build lists and names from tokens; other control tokens stay. Raises TokenError."""
    items: list[Value | Control] = []
    position = 0
    while position < len(tokens):
        item, position = _parse_item(tokens, position, 0)
        items.append(item)
    return items


def _parse_item(tokens: list[Token], position: int, depth: int) -> tuple[Value | Control, int]:
    if position >= len(tokens):
        raise TokenError("the stream ends within a value")
    if depth > MAX_DEPTH:
        raise TokenError("nested too deeply")
    token = tokens[position]
    if token is Control.START_LIST:
        return _parse_list(tokens, position + 1, depth + 1)
    if token is Control.START_NAME:
        name, position = _parse_value(tokens, position + 1, depth + 1)
        value, position = _parse_value(tokens, position, depth + 1)
        if isinstance(name, list | Named):
            raise TokenError("a name is an integer or a byte string")
        if position >= len(tokens) or tokens[position] is not Control.END_NAME:
            raise TokenError("a name without its end")
        return Named(name, value), position + 1
    if token in (Control.END_LIST, Control.END_NAME) and isinstance(token, Control):
        raise TokenError("an end without its start")
    return token, position + 1


def _parse_value(tokens: list[Token], position: int, depth: int) -> tuple[Value, int]:
    item, position = _parse_item(tokens, position, depth)
    if isinstance(item, Control):
        raise TokenError("a control token within a value")
    return item, position


def _parse_list(tokens: list[Token], position: int, depth: int) -> tuple[Value, int]:
    values: list[Value] = []
    while True:
        if position >= len(tokens):
            raise TokenError("a list without its end")
        if tokens[position] is Control.END_LIST:
            return values, position + 1
        value, position = _parse_value(tokens, position, depth)
        values.append(value)


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
    """Parse a ComPacket; bytes after its declared length are padding. Raises PacketError."""
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
    """Build a ComPacket with nothing outstanding after it."""
    sub = _SUB.pack(0, len(message.payload)) + message.payload
    sub += bytes(-len(sub) % 4)
    packet = _PACKET.pack(message.tper_session, message.host_session, 0, 0, 0, 0, len(sub)) + sub
    return _COM.pack(COM_ID, 0, 0, 0, len(packet)) + packet


def pack_empty(outstanding_bytes: int = 0) -> bytes:
    """Build a ComPacket without content; `outstanding_bytes` wait for a larger buffer."""
    return _COM.pack(COM_ID, 0, outstanding_bytes, outstanding_bytes, 0)
