"""Traffic of a block device, as counted by the kernel."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path

from contract import system_text

SECTOR_BYTES = 512  # the unit of the kernel's counts, independent of the disk's sector size


@dataclass(frozen=True)
class BlockTraffic:
    """Bytes read from, written to and discarded on a block device."""

    read_bytes: int
    written_bytes: int
    discarded_bytes: int

    @classmethod
    def of_device(cls, name: str, blocks: Path = Path("/sys/class/block")) -> BlockTraffic | None:
        """Read the counts since the device appeared; None if they are switched off (`iostats`).

        Source: the kernel's Documentation/block/stat.rst. Raises OSError.
        """
        folder = blocks / name
        # A partition uses its disk's queue, in the parent of the folder that the link resolves to.
        parent = "" if (folder / "queue").exists() else ".."
        if system_text.read_line_or_empty(folder / parent / "queue" / "iostats") == "0":
            return None
        counts = [int(field) for field in system_text.read(folder / "stat").split()]
        return cls(*(SECTOR_BYTES * counts[place] for place in (2, 6, 13)))

    def __sub__(self, before: BlockTraffic) -> BlockTraffic:
        pairs = zip(astuple(self), astuple(before), strict=True)
        return BlockTraffic(*(count - start for count, start in pairs))
