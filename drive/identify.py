"""Identify data structures, NVM Express Base Specification 1.4, section 5.15."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

from .nvme_tcp import MAX_TRANSFER_BYTES
from .vices import Vices

VERSION = 0x00010400
FIRMWARE = "1.0"
QUEUE_ENTRIES = 128
MAX_IO_QUEUES = 8
_SQE_BYTES = 64


@dataclass(frozen=True)
class DriveConfig:
    """Identity and geometry of a drive; `blocks` × `block_bytes` is its size.

    The last `second_blocks` are a second namespace, on the same security subsystem.
    """

    nqn: str
    model: str
    serial: str
    block_bytes: int
    blocks: int
    opal: bool
    second_blocks: int = 0

    @property
    def namespaces(self) -> dict[int, tuple[int, int]]:
        """First block and number of blocks of each namespace, by its identifier."""
        first = self.blocks - self.second_blocks
        return {1: (0, first)} | ({2: (first, self.second_blocks)} if self.second_blocks else {})

    def uuid(self, nsid: int) -> uuid.UUID:
        """Return a namespace's UUID, derived from NQN and serial number."""
        of_second = "/2" if nsid == 2 else ""
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{self.nqn}/{self.serial}{of_second}")


def controller(
    config: DriveConfig, controller_id: int, vices: Vices, *, measures_power: bool = False
) -> bytes:
    """Return Identify Controller (CNS 01h), 4096 bytes."""
    data = bytearray(4096)
    put = struct.pack_into
    serial = bytes.fromhex(vices.serial_hex) or config.serial.encode("ascii")
    put("<20s", data, 4, serial.ljust(20))
    put("<40s", data, 24, config.model.encode("ascii").ljust(40))
    put("<8s", data, 64, FIRMWARE.encode("ascii").ljust(8))
    put("<B", data, 76, 0b10 * vices.multipath)  # CMIC: several controllers
    put("<BHI", data, 77, MAX_TRANSFER_BYTES.bit_length() - 13, controller_id, VERSION)
    put("<I", data, 96, measures_power << 21)  # CTRATT: power measurement, of version 2.3
    put("<B", data, 111, 1)  # an I/O controller
    put("<H", data, 256, 0x0001 if config.opal else 0)  # OACS: Security Send and Receive
    put("<H", data, 320, 10)  # KAS in 100 ms
    count = len(config.namespaces)
    put("<BBHI", data, 512, 0x66, 0x44, QUEUE_ENTRIES, count)  # SQES, CQES, MAXCMD, NN
    put("<H", data, 520, 0x000C)  # ONCS: Write Zeroes, Dataset Management
    put("<I", data, 536, 0x00100001)  # SGLS: SGLs, and data by offset in the capsule
    put("<256s", data, 768, config.nqn.encode())
    put("<IIH", data, 1792, (_SQE_BYTES + MAX_TRANSFER_BYTES) // 16, 1, 0)  # IOCCSZ, IORCSZ, ICDOFF
    put("<B", data, 1803, 1)  # MSDBD
    return bytes(data)


def namespace(config: DriveConfig, nsid: int, vices: Vices) -> bytes:
    """Return Identify Namespace (CNS 00h), 4096 bytes."""
    data = bytearray(4096)
    _, blocks = config.namespaces[nsid]
    struct.pack_into("<QQQ", data, 0, blocks, blocks, blocks)
    data[30] = vices.multipath  # NMIC: shared by controllers
    data[33] = 0 if config.opal else 0b1001  # DLFEAT: what deallocated blocks read as
    data[104:120] = config.uuid(nsid).bytes
    struct.pack_into("<HBB", data, 128, 0, config.block_bytes.bit_length() - 1, 0)
    return bytes(data)


def turning_namespace(vices: Vices) -> bytes:
    """Return the I/O Command Set Independent Identify Namespace of a disk that turns, 4096 bytes.

    CNS 08h, whose rotational media is of Base Specification 2.1.
    """
    data = bytearray(4096)
    data[0] = 1 << 4  # NSFEAT: rotational media
    data[1] = vices.multipath  # NMIC: shared by controllers
    data[14] = 1  # NSTAT: ready
    return bytes(data)


def descriptors(config: DriveConfig, nsid: int) -> bytes:
    """Return the Namespace Identification Descriptor list (CNS 03h): NGUID and UUID, 4096 bytes."""
    identifier = config.uuid(nsid).bytes
    entries = b"".join(struct.pack("<BBH16s", kind, 16, 0, identifier) for kind in (2, 3))
    return entries.ljust(4096, b"\0")


def active_namespaces(config: DriveConfig, above: int) -> bytes:
    """Return the Active Namespace ID list (CNS 02h) of identifiers above `above`, 4096 bytes."""
    nsids = [nsid for nsid in config.namespaces if nsid > above]
    return struct.pack(f"<{len(nsids)}I", *nsids).ljust(4096, b"\0")
