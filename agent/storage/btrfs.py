"""Where Btrfs keeps a byte on its device.

FIEMAP there reports logical addresses, the chunk tree maps them (Documentation/filesystems/btrfs;
structures of linux/btrfs.h and linux/btrfs_tree.h).
"""

from __future__ import annotations

import errno
import fcntl
import struct
from collections.abc import Iterator

_TREE_SEARCH = 0xD0009411  # BTRFS_IOC_TREE_SEARCH
_ARGUMENT_BYTES = 4096
# Tree; objectids, offsets and transaction ids from and to; types from and to; items; unused.
_KEY = struct.Struct("<QQQQQQQIIII32x")
_ITEM = struct.Struct("<QQQII")  # transaction id, objectid, offset, type, length
_CHUNK = struct.Struct("<QQQQIIIHH")  # length, …, 4th: profile, …, stripes, sub-stripes
_STRIPE = struct.Struct("<QQ16x")  # device id, offset
_CHUNK_TREE, _FIRST_CHUNK_TREE, _CHUNK_ITEM = 3, 256, 228
_MOST = 2**64 - 1
_MANY_PLACES = 0b11111001000  # RAID0, RAID10, RAID5, RAID6, RAID1C3 and 4: not one device


def physical(fd: int, address: int) -> int | None:
    """Return the byte on the device of a logical address; `address` itself where it is not Btrfs.

    None where no chunk has it, or one that is spread over devices. Raises OSError.
    """
    try:
        for logical, length, profile, stripe in _chunks(fd, address):
            if logical <= address < logical + length:
                return None if profile & _MANY_PLACES else stripe + address - logical
    except OSError as error:
        if error.errno == errno.ENOTTY:  # no call of this file system's
            return address
        raise
    return None


def _chunks(fd: int, last: int) -> Iterator[tuple[int, int, int, int]]:
    """Logical address, length, profile and first device offset of the chunks up to `last`."""
    first = 0
    while first <= last:
        key = (_CHUNK_TREE, _FIRST_CHUNK_TREE, _FIRST_CHUNK_TREE, first, last, 0, _MOST)
        head = _KEY.pack(*key, _CHUNK_ITEM, _CHUNK_ITEM, 2**32 - 1, 0)
        buffer = bytearray(head.ljust(_ARGUMENT_BYTES, b"\0"))
        fcntl.ioctl(fd, _TREE_SEARCH, buffer, True)
        count, at = _KEY.unpack_from(buffer)[9], _KEY.size
        for _ in range(count):
            _, _, logical, _, length = _ITEM.unpack_from(buffer, at)
            at += _ITEM.size
            size, _, _, profile, *_ = _CHUNK.unpack_from(buffer, at)
            yield logical, size, profile, _STRIPE.unpack_from(buffer, at + _CHUNK.size)[1]
            at, first = at + length, logical + 1
        if not count:
            return
