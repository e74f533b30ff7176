"""Namespaces, heat and writes of an NVMe disk as it reports them."""

from __future__ import annotations

import struct
from io import FileIO
from pathlib import Path

from contract import system_text
from instrumentation.nvme import IDENTIFY, PAGE_BYTES, NvmeError, ask, read_health

# Identify's lists of namespaces (NVM Express Base Specification 2.0, 5.17): those that exist, where
# the controller manages them, else those that are attached to it.
_ALLOCATED, _ACTIVE = 0x10, 0x02
# Of the log page of health: minutes at and above the two limits of temperature, transitions to
# slower states.
_HEAT = struct.Struct("<192xII16xII")
_HOST_WRITES = slice(80, 96)  # of the same page: write commands completed, little-endian


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
            return ask(file, IDENTIFY, namespace, 0, PAGE_BYTES)[33] & 0b111 == 1
    except OSError:
        return False


def throttlings(device: str) -> int:
    """Add up the minutes above a disk's limits of heat and the slower states entered in its life.

    Raises OSError.
    """
    return sum(_HEAT.unpack_from(read_health(device)))


def writes(device: str) -> int:
    """Count the write commands that a disk has completed in its life; raises OSError."""
    return int.from_bytes(read_health(device)[_HOST_WRITES], "little")


def _listed(file: FileIO, list_number: int, *, optional: bool = False) -> set[int]:
    try:
        page = ask(file, IDENTIFY, 0, list_number, PAGE_BYTES)
    except NvmeError:
        if not optional:
            raise
        return set()
    return set(struct.unpack(f"<{PAGE_BYTES // 4}I", page)) - {0}
