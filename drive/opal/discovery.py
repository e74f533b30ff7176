"""Level 0 Discovery (Opal 2.01, section 3.1.1; Block SID Authentication 1.00, section 3)."""

from __future__ import annotations

import struct

from drive.opal.core import Core
from drive.opal.packets import COM_ID
from drive.opal.uids import ADMINS, USERS

_SYNC_STREAMING = 0x11  # no ComID management: none is handed out
_VERSION_1 = 0x10


def _feature(code: int, body: bytes) -> bytes:
    return struct.pack(">HBB", code, _VERSION_1, len(body)) + body


def discover(core: Core, block_sid_feature: bool, cleared_by_reset: bool) -> bytes:
    """Header and features: TPer, Locking, Geometry, Opal 2, and Block SID where it is offered."""
    features = [
        _feature(0x0001, struct.pack(">B11x", _SYNC_STREAMING)),
        _feature(0x0002, struct.pack(">B11x", _locking_flags(core))),
        _feature(0x0003, _geometry(core)),
        _feature(0x0203, struct.pack(">HHBHHBB5x", COM_ID, 1, 0, ADMINS, USERS, 0, 0)),
    ]
    if block_sid_feature:
        states = (not core.sid_is_msid) | core.sid_blocked << 1
        features.append(_feature(0x0402, struct.pack(">BB10x", states, cleared_by_reset)))
    body = b"".join(features)
    return struct.pack(">II40x", 44 + len(body), 1) + body


def _locking_flags(core: Core) -> int:
    """Supported, enabled, locked, media encryption, MBR enabled, MBR done: bits 0 to 5."""
    state = core.state
    bits = (
        True, state.locking_active, core.locking.any_locked, True,
        state.mbr.enabled, state.mbr.enabled and state.mbr.done,
    )  # fmt: skip
    return sum(bit << position for position, bit in enumerate(bits))


def _geometry(core: Core) -> bytes:
    align = core.locking.alignment_blocks
    return struct.pack(">B7xIQQ", int(align > 1), core.locking.block_bytes, align, 0)
