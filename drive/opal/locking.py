"""Locking ranges and their media keys: which blocks may be used now, and under which key."""

from __future__ import annotations

import logging
import os

from cryptography.hazmat.primitives.keywrap import aes_key_unwrap, aes_key_wrap

from ..aes_xts import KEY_BYTES, AesXts
from ..media import EncryptedMedia, Segment, Shadow
from ..state import POWER_CYCLE, DriveState, MbrControl, RangeState
from ..vices import Vices
from .byte_table import ByteTable
from .uids import RANGES, MethodError, Status

_log = logging.getLogger("drive.opal")


def new_media_key(key_bits: int) -> bytes:
    """Return a random AES-XTS key, both halves of `key_bits`."""
    return os.urandom(KEY_BYTES[key_bits])


class Locking:
    """The ranges of `state`, applied to `media`.

    A method changes `state` and the keys in memory; `publish` applies them to the media. Keys of
    ranges that are locked for reading and writing are not in memory.
    """

    def __init__(
        self,
        state: DriveState,
        media: EncryptedMedia,
        blocks: int,
        block_bytes: int,
        mbr: ByteTable,
    ) -> None:
        self.state = state
        self.blocks = blocks
        self.block_bytes = block_bytes
        self.keys: dict[int, bytes] = {}
        self.vices = Vices()
        self.dead = False  # until the next power cycle no block can be used
        self.erased: list[tuple[int, int]] = []  # first block and end of what has a new key
        self._in_force: list[tuple[int, int, int]] = []
        self._media = media
        self._shadow = Shadow(mbr.fd, min(blocks, mbr.size_bytes // block_bytes))
        self._ciphers: dict[bytes, AesXts] = {}

    def set_vices(self, vices: Vices) -> None:
        self.vices, self._media.lock_ignored = vices, vices.lock_ignored

    @property
    def alignment_blocks(self) -> int:
        """Number of blocks that ranges are aligned to, 4096 bytes by default."""
        return self.vices.alignment_blocks or max(1, 4096 // self.block_bytes)

    @property
    def any_locked(self) -> bool:
        return any(not (row.readable and row.writable) for row in self.state.ranges)

    def power_on(self) -> None:
        """Lock what a power cycle locks and load the keys that need no PIN."""
        self.keys, self.dead = {}, False
        self.state.mbr.reset(POWER_CYCLE)
        for index, row in enumerate(self.state.ranges):
            row.lock_for_reset(POWER_CYCLE)
            if row.open_key and (row.readable or row.writable):
                self.keys[index] = row.open_key

    def heeds(self, event: int) -> bool:
        """Return whether a reset of this type changes anything."""
        rows = self.state.ranges
        return event in self.state.mbr.done_on_reset or any(event in r.lock_on_reset for r in rows)

    def reset_event(self, event: int) -> None:
        """Lock what a reset of this type locks; other keys stay in memory."""
        self.state.mbr.reset(event)
        for index, row in enumerate(self.state.ranges):
            if event in row.lock_on_reset:
                row.lock_for_reset(event)
                self.settle(index, None)

    def activate(self, kek: bytes) -> None:
        """Wrap every media key under the new key of the Locking SP."""
        for row in self.state.ranges:
            row.wrapped_key = aes_key_wrap(kek, row.open_key)

    def factory_reset(self, keep_global_key: bytes | None = None) -> None:
        """Restore the factory state with new keys; the global range may keep its key."""
        self.erased += [(a, b) for index, a, b in self._layout() if index or not keep_global_key]
        self.state.ranges[:] = [
            RangeState(open_key=new_media_key(self.state.key_bits)) for _ in range(RANGES)
        ]
        if keep_global_key:
            self.state.ranges[0].open_key = keep_global_key
        self.state.mbr = MbrControl()
        self.keys = {index: row.open_key for index, row in enumerate(self.state.ranges)}

    def media_key(self, index: int, kek: bytes | None) -> bytes | None:
        """Return the range's key if it is in memory or can be unwrapped."""
        row = self.state.ranges[index]
        key = self.keys.get(index) or row.open_key
        if not key and kek and row.wrapped_key:
            key = aes_key_unwrap(kek, row.wrapped_key)
        return key or None

    def generate_key(self, index: int, kek: bytes) -> None:
        """Replace the range's key: what was written can never be read again."""
        row = self.state.ranges[index]
        key = new_media_key(self.state.key_bits)
        row.wrapped_key = aes_key_wrap(kek, key)
        row.open_key = key if row.served_at_power_on else b""
        places = {*self._layout(), *self._in_force}  # a transaction may have moved it before
        self.erased += [(start, end) for owner, start, end in places if owner == index]
        if row.readable or row.writable:
            self.keys[index] = key

    def settle(self, index: int, kek: bytes | None) -> None:
        """Store the range's key in the place that its present lock state requires."""
        row = self.state.ranges[index]
        key = self.media_key(index, kek)
        in_use = row.readable or row.writable
        if key is None and (in_use or row.served_at_power_on):
            raise MethodError(Status.NOT_AUTHORIZED)
        row.open_key = key if key and row.served_at_power_on else b""
        if key and in_use:
            self.keys[index] = key
        else:
            self.keys.pop(index, None)

    def check_geometry(self, index: int) -> None:
        """Raise INVALID_PARAMETER for a range outside the disk, unaligned, or over another."""
        row, align = self.state.ranges[index], self.alignment_blocks
        end = row.start + row.length
        offset = (row.start - self.vices.lowest_lba) % align if row.length else 0
        refused = self.vices.no_range and index and row.length
        if refused or end > self.blocks or offset or row.length % align:
            raise MethodError(Status.INVALID_PARAMETER)
        for number, other in enumerate(self.state.ranges[1:], 1):
            overlaps = row.start < other.start + other.length and other.start < end
            if number != index and row.length and other.length and overlaps:
                raise MethodError(Status.INVALID_PARAMETER)

    def discard_erased(self) -> None:
        """Discard the ciphertext of erased blocks, so that no copy of their key opens it."""
        erased, self.erased = self.erased, []
        try:
            for start, end in erased:
                self._media.discard(start, end - start)
        except OSError as error:
            _log.warning("erased by its key alone; the ciphertext could not be freed: %s", error)

    def publish(self) -> None:
        """Give the media its new segments: the ranges, and the global range between them."""
        ciphers = {
            key: self._ciphers.get(key) or AesXts(key, self.block_bytes)
            for key in self.keys.values()
        }
        self._ciphers = ciphers
        self._in_force = self._layout()
        self._media.segments = tuple(self._segment(*part, ciphers) for part in self._in_force)
        self._media.shadow = self._shadow if self.state.mbr.shadows else None

    def _layout(self) -> list[tuple[int, int, int]]:
        """Return (range, first block, end) over the whole disk, in order of address."""
        layout, position = [], 0
        numbered = list(enumerate(self.state.ranges))
        for index, row in sorted(numbered[1:], key=lambda pair: pair[1].start):
            if row.length == 0:
                continue
            if row.start > position:
                layout.append((0, position, row.start))
            position = row.start + row.length
            layout.append((index, row.start, position))
        if position < self.blocks:
            layout.append((0, position, self.blocks))
        return layout

    def _segment(self, index: int, start: int, end: int, ciphers: dict[bytes, AesXts]) -> Segment:
        row = self.state.ranges[index]
        cipher = ciphers.get(self.keys.get(index, b""))
        alive = not self.dead
        return Segment(start, end, row.readable and alive, row.writable and alive, cipher)
