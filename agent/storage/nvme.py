"""What an NVMe controller reports, by the kernel's pass-through (linux/nvme_ioctl.h)."""

from __future__ import annotations

import ctypes
import fcntl
import struct
from io import FileIO
from pathlib import Path

from contract import system_text

# Opcode, flags, 2 reserved, namespace, CDW 2 and 3, metadata, data, their lengths, CDW 10 to 15,
# time-out, result.
_COMMAND = struct.Struct("=BBHIIIQQII6III")
_ADMIN = 3 << 30 | _COMMAND.size << 16 | ord("N") << 8 | 0x41
_GET_LOG_PAGE, _IDENTIFY = 0x02, 0x06
# Identify's lists of namespaces (NVM Express Base Specification 2.0, 5.17): those that exist, where
# the controller manages them, else those that are attached to it.
_ALLOCATED, _ACTIVE = 0x10, 0x02
_PAGE_BYTES = 4096
# The log page of health (5.14.1.2) of the whole controller: 512 bytes, asked for in words, counted
# from 0. Of it, minutes at and above the two limits of temperature, transitions to slower states.
_HEALTH, _ALL_NAMESPACES, _HEALTH_BYTES = 0x02 | (512 // 4 - 1) << 16, 0xFFFFFFFF, 512
_HEAT = struct.Struct("<192xII16xII")
_HOST_WRITES = slice(80, 96)  # of the same page: write commands completed, little-endian


class NvmeError(OSError):
    """The controller refused a command."""


def namespaces(device: str) -> set[int]:
    """Return identifiers of the namespaces that the controller of a disk knows; raises OSError."""
    with Path(device).open("rb", buffering=0) as file:
        return _listed(file, _ACTIVE) | _listed(file, _ALLOCATED, optional=True)


def reads_zeros(name: str) -> bool:
    """Return whether a disk is NVMe and promises that discarded blocks read as zeros.

    `name` is the kernel's; see Identify Namespace, DLFEAT, of the NVM Command Set Specification.
    """
    try:
        namespace = system_text.read_number(Path(f"/sys/class/block/{name}/nsid"))
        with Path(f"/dev/{name}").open("rb", buffering=0) as file:
            return _ask(file, _IDENTIFY, namespace, 0, _PAGE_BYTES)[33] & 0b111 == 1
    except OSError:
        return False


def throttlings(device: str) -> int:
    """Return what heat did to the disk in its life.

    Minutes above its limits and slower states entered.

    Raises OSError.
    """
    return sum(_HEAT.unpack_from(_health(device)))


def writes(device: str) -> int:
    """Write commands that the controller of a disk has completed in its life; raises OSError."""
    return int.from_bytes(_health(device)[_HOST_WRITES], "little")


def _health(device: str) -> bytes:
    with Path(device).open("rb", buffering=0) as file:
        return _ask(file, _GET_LOG_PAGE, _ALL_NAMESPACES, _HEALTH, _HEALTH_BYTES)


def _listed(file: FileIO, which: int, *, optional: bool = False) -> set[int]:
    try:
        page = _ask(file, _IDENTIFY, 0, which, _PAGE_BYTES)
    except NvmeError:
        if not optional:
            raise
        return set()
    return set(struct.unpack(f"<{_PAGE_BYTES // 4}I", page)) - {0}


def _ask(file: FileIO, opcode: int, namespace: int, cdw10: int, length_bytes: int) -> bytes:
    page = ctypes.create_string_buffer(length_bytes)
    head = (opcode, 0, 0, namespace, 0, 0, 0, ctypes.addressof(page), 0, length_bytes)
    status = fcntl.ioctl(file, _ADMIN, bytearray(_COMMAND.pack(*head, cdw10, *bytes(7))), True)
    if status:
        raise NvmeError(0, f"NVMe status {status:#x}")
    return page.raw
