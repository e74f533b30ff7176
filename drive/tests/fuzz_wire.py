"""What the fuzzer's targets share: findings, and commands as bytes to be sent many at once."""

from __future__ import annotations

import struct

from drive.initiator import Initiator
from drive.nvme_tcp import COMMON, IC, PDU_C2H_DATA, PDU_COMMAND, SGL_IN_CAPSULE, SGL_TRANSPORT
from drive.opal.packets import COM_ID
from drive.tests.process import NQN

DEADLINE_S = 30
STACK_RESET = struct.pack(">HHI", COM_ID, 0, 2).ljust(512, b"\0")
CRASH, CHANGE, KEY = "crashes", "unauthorised_changes", "keys_after_erase"
_SQE = struct.Struct("<BBHI16xQI3xB6I")


class FindingError(Exception):
    """Something that a drive must not do; `kind` is CRASH, CHANGE or KEY."""

    def __init__(self, message: str, kind: str = CRASH) -> None:
        super().__init__(message)
        self.kind = kind


def connect_pdus(queue_id: int, controller_id: int) -> bytes:
    """ICReq and Connect."""
    data = bytearray(1024)
    struct.pack_into("<H", data, 16, controller_id)
    data[256 : 256 + len(NQN)] = NQN.encode()
    sqe = _SQE.pack(0x7F, 0x40, 0, 1, 0, 1024, SGL_IN_CAPSULE, queue_id << 16, 127, 0, 0, 0, 0)
    header = COMMON.pack(PDU_COMMAND, 0, 72, 72, 72 + len(data))
    return IC.pack(0, 0, 128, 0, 128, 0, 0, 0, 0) + header + sqe + bytes(data)


def exchange(protocol: int, com_id: int, data: bytes) -> tuple[bytes, bytes]:
    """PDUs of a Security Send and of the Security Receive that fetches its answer."""
    address = protocol << 24 | com_id << 8
    send = _SQE.pack(0x81, 0x40, 0, 0, 0, len(data), SGL_IN_CAPSULE, address, len(data), 0, 0, 0, 0)
    receive = _SQE.pack(0x82, 0x40, 1, 0, 0, 2048, SGL_TRANSPORT, address, 2048, 0, 0, 0, 0)
    return (
        COMMON.pack(PDU_COMMAND, 0, 72, 72, 72 + len(data)) + send + data,
        COMMON.pack(PDU_COMMAND, 0, 72, 0, 72) + receive,
    )


def read_answer(host: Initiator) -> None:
    header = host._receive(24)
    kind, _, _, _, length = COMMON.unpack_from(header)
    if kind == PDU_C2H_DATA:
        host._receive(length - 24)
