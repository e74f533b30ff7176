"""Admin commands to an NVMe controller by the kernel's pass-through (linux/nvme_ioctl.h)."""

from __future__ import annotations

import ctypes
import fcntl
import struct
from io import FileIO
from pathlib import Path

# Opcode, flags, 2 reserved, namespace, CDW 2 and 3, metadata, data, their lengths, CDW 10 to 15,
# time-out, result.
_COMMAND = struct.Struct("=BBHIIIQQII6III")
_ADMIN = 3 << 30 | _COMMAND.size << 16 | ord("N") << 8 | 0x41
GET_LOG_PAGE, IDENTIFY = 0x02, 0x06
PAGE_BYTES = 4096
# The log page of health (NVM Express Base Specification 1.4, 5.14.1.2) of the whole controller:
# 512 bytes, asked for in words, counted from 0.
_HEALTH, _ALL_NAMESPACES, _HEALTH_BYTES = 0x02 | (512 // 4 - 1) << 16, 0xFFFFFFFF, 512
_THE_CONTROLLER = 0x01  # of Identify's structures


class NvmeError(OSError):
    """The controller refused a command."""


def identify_controller(device: str) -> bytes:
    """Return the Identify Controller data structure of a controller or disk; raises OSError."""
    return _ask_device(device, IDENTIFY, 0, _THE_CONTROLLER, PAGE_BYTES)


def read_health(device: str) -> bytes:
    """Return the SMART / Health log of a controller or disk; raises OSError."""
    return _ask_device(device, GET_LOG_PAGE, _ALL_NAMESPACES, _HEALTH, _HEALTH_BYTES)


def _ask_device(device: str, *request: int) -> bytes:
    with Path(device).open("rb", buffering=0) as file:
        return ask(file, *request)


def ask(
    file: FileIO,
    opcode: int,
    namespace: int,
    cdw10: int,
    length_bytes: int,
    *,
    cdw11: int = 0,
    data: bytes = b"",
) -> bytes:
    """Send an admin command; return the page it reads or writes. Raises NvmeError, OSError."""
    page = ctypes.create_string_buffer(data, length_bytes)
    head = (opcode, 0, 0, namespace, 0, 0, 0, ctypes.addressof(page), 0, length_bytes)
    status = fcntl.ioctl(
        file, _ADMIN, bytearray(_COMMAND.pack(*head, cdw10, cdw11, *bytes(6))), True
    )
    if status:
        raise NvmeError(0, f"NVMe status {status:#x}")
    return page.raw
