"""Exchanges between TPer and host outside of sessions: protocols, ComIDs, features, limits."""

from __future__ import annotations

import struct

from .calls import Call
from .core import Core
from .packets import COM_ID, MAX_COM_PACKET_BYTES, Named, Value
from .uids import ADMINS, USERS

# ComIDs, and what security protocols 0 and 2 say of them (Core 2.01, section 3.3.4).
DISCOVERY, TPER_RESET, BLOCK_SID = 0x0001, 0x0004, 0x0005
VERIFY, STACK_RESET = 1, 2
_ISSUED, _ASSOCIATED = 2, 3


def supported_protocols(specific: int) -> bytes:
    """Answer security protocol 0 (SPC-4): the list of protocols, else no certificate."""
    return struct.pack(">6xH", 3) + b"\0\1\2" if specific == 0 else bytes(4)


def parse_com_id_request(data: bytes) -> int | None:
    """Return the code of a request about our ComID; None if it is not supported."""
    if len(data) < 8:
        return None
    com_id, extension, request = struct.unpack_from(">HHI", data)
    supported = (com_id, extension) == (COM_ID, 0) and request in (VERIFY, STACK_RESET)
    return int(request) if supported else None


def com_id_answer(request: int, associated: bool) -> bytes:
    """Answer VERIFY (a static ComID has no times to report) or STACK_RESET (done)."""
    if request == STACK_RESET:
        body = bytes(4)
    else:
        body = struct.pack(">I", _ASSOCIATED if associated else _ISSUED) + bytes(30)
    return struct.pack(">HHI2xH", COM_ID, 0, request, len(body)) + body


# Level 0 Discovery (Opal 2.01, section 3.1.1; Block SID Authentication 1.00, section 3).
_SYNC_STREAMING = 0x11  # no ComID management: none is handed out
_VERSION_1 = 0x10


def _feature(code: int, body: bytes) -> bytes:
    return struct.pack(">HBB", code, _VERSION_1, len(body)) + body


def discover(core: Core, block_sid_feature: bool, cleared_by_reset: bool) -> bytes:
    """Build header and features: TPer, Locking, Geometry, Opal 2, and Block SID if offered."""
    locking = core.locking
    align, vices = locking.alignment_blocks, locking.vices
    block_bytes = vices.opal_block_bytes or locking.block_bytes
    geometry = struct.pack(">B7xIQQ", int(align > 1), block_bytes, align, vices.lowest_lba)
    features = [
        _feature(0x0001, struct.pack(">B11x", _SYNC_STREAMING)),
        _feature(0x0002, struct.pack(">B11x", _locking_flags(core))),
        _feature(0x0003, geometry),
        _feature(0x0203, struct.pack(">HHBHHBB5x", COM_ID, 1, 0, ADMINS, USERS, 0, 0)),
    ]
    if block_sid_feature:
        states = (not core.sid_is_msid) | core.sid_blocked << 1
        features.append(_feature(0x0402, struct.pack(">BB10x", states, cleared_by_reset)))
    body = b"".join(features)
    return struct.pack(">II40x", 44 + len(body), 1) + body


def _locking_flags(core: Core) -> int:
    """Return supported, enabled, locked, media encryption, MBR enabled, MBR done: bits 0 to 5."""
    state = core.state
    bits = (
        True, state.locking_active, core.locking.any_locked,
        not core.locking.vices.no_media_encryption,
        state.mbr.enabled, state.mbr.enabled and state.mbr.done,
    )  # fmt: skip
    return sum(bit << position for position, bit in enumerate(bits))


# Properties (Opal 2.01, section 4.1.1.1).
INITIAL_HOST_BYTES = 2048  # what a host takes until it says more
TPER_PROPERTIES = {
    b"MaxMethods": 1,
    b"MaxSubpackets": 1,
    b"MaxPacketSize": MAX_COM_PACKET_BYTES - 20,
    b"MaxPackets": 1,
    b"MaxComPacketSize": MAX_COM_PACKET_BYTES,
    b"MaxResponseComPacketSize": MAX_COM_PACKET_BYTES,
    b"MaxSessions": 1,
    b"MaxIndTokenSize": MAX_COM_PACKET_BYTES - 56,
    b"MaxAuthentications": 2,
    b"MaxTransactionLimit": 1,
    b"DefSessionTimeout": 0,
}
_HOST_MINIMA = {
    b"MaxComPacketSize": 2048,
    b"MaxPacketSize": 2028,
    b"MaxIndTokenSize": 1992,
    b"MaxPackets": 1,
    b"MaxSubpackets": 1,
    b"MaxMethods": 1,
}


def accept_properties(call: Call) -> dict[bytes, int]:
    """Return those of the host's limits that matter here, each at least its minimum."""
    proposed = call.named.get(0)
    accepted = {}
    for pair in proposed if isinstance(proposed, list) else []:
        match pair:
            case Named(name=bytes(name), value=int(value)) if name in _HOST_MINIMA:
                accepted[name] = max(_HOST_MINIMA[name], min(value, MAX_COM_PACKET_BYTES))
    return accepted


def properties_answer(accepted: dict[bytes, int]) -> list[Value]:
    """Build the answer's parameters: the TPer's properties, and the host's as accepted."""
    values: list[Value] = [[Named(name, value) for name, value in TPER_PROPERTIES.items()]]
    if accepted:
        values.append(Named(0, [Named(name, value) for name, value in accepted.items()]))
    return values
