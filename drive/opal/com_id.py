"""ComIDs and what security protocols 0 and 2 say of them (Core 2.01, section 3.3.4)."""

from __future__ import annotations

import struct

from drive.opal.packets import COM_ID

DISCOVERY, TPER_RESET, BLOCK_SID = 0x0001, 0x0004, 0x0005
VERIFY, STACK_RESET = 1, 2
_ISSUED, _ASSOCIATED = 2, 3


def supported_protocols(specific: int) -> bytes:
    """Security protocol 0 (SPC-4): the list of protocols; no certificate for the others."""
    return struct.pack(">6xH", 3) + b"\0\1\2" if specific == 0 else bytes(4)


def parse_request(data: bytes) -> int | None:
    """The code of a request about our ComID; None if it is none that the drive knows."""
    if len(data) < 8:
        return None
    com_id, extension, request = struct.unpack_from(">HHI", data)
    known = (com_id, extension) == (COM_ID, 0) and request in (VERIFY, STACK_RESET)
    return int(request) if known else None


def answer(request: int, associated: bool) -> bytes:
    """The answer to VERIFY (a static ComID has no times to report) or STACK_RESET (done)."""
    if request == STACK_RESET:
        body = bytes(4)
    else:
        body = struct.pack(">I", _ASSOCIATED if associated else _ISSUED) + bytes(30)
    return struct.pack(">HHI2xH", COM_ID, 0, request, len(body)) + body
