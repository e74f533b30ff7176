"""NVMe status codes that the drive answers with (Base Specification 1.4, section 4.6.1.2)."""

from __future__ import annotations

DNR = 0x4000  # Do Not Retry
INVALID_OPCODE = DNR | 0x01
INVALID_FIELD = DNR | 0x02
INTERNAL_ERROR = DNR | 0x06
SEQUENCE_ERROR = DNR | 0x0C
INVALID_NAMESPACE = DNR | 0x0B
WRONG_DATA_LENGTH = DNR | 0x0F
LBA_OUT_OF_RANGE = DNR | 0x80
INVALID_LOG_PAGE = DNR | 0x109
CONNECT_INVALID = DNR | 0x182
WRITE_FAULT = 0x280
READ_ERROR = 0x281
ACCESS_DENIED = DNR | 0x286


class CommandError(Exception):
    """A command ends with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status:#06x}")
        self.status = status
