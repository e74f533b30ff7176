"""Which namespaces an NVMe controller has, by the kernel's pass-through (linux/nvme_ioctl.h)."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct

# Opcode, flags, 2 reserved, namespace, CDW 2 and 3, metadata, data, their lengths, CDW 10 to 15,
# time-out, result.
_COMMAND = struct.Struct("=BBHIIIQQII6III")
_ADMIN = 3 << 30 | _COMMAND.size << 16 | ord("N") << 8 | 0x41
_IDENTIFY = 0x06
# Identify's lists of namespaces (NVM Express Base Specification 2.0, 5.17): those that exist, where
# the controller manages them, else those that are attached to it.
_ALLOCATED, _ACTIVE = 0x10, 0x02
_PAGE_BYTES = 4096


def namespaces(device: str) -> set[int]:
    """Identifiers of the namespaces that the controller of a disk knows; raises OSError."""
    fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _listed(fd, _ACTIVE) | _listed(fd, _ALLOCATED, optional=True)
    finally:
        os.close(fd)


def _listed(fd: int, which: int, *, optional: bool = False) -> set[int]:
    page = ctypes.create_string_buffer(_PAGE_BYTES)
    words = (which, 0, 0, 0, 0, 0)
    head = (_IDENTIFY, 0, 0, 0, 0, 0, 0, ctypes.addressof(page), 0, _PAGE_BYTES)
    status = fcntl.ioctl(fd, _ADMIN, bytearray(_COMMAND.pack(*head, *words, 0, 0)), True)
    if status and not optional:
        raise OSError(0, f"NVMe status {status:#x}")
    return set() if status else set(struct.unpack(f"<{_PAGE_BYTES // 4}I", page.raw)) - {0}
