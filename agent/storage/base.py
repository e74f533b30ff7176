"""What a kind of storage stack is: how its mapping comes to be, and what must then be true."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.storage.devices import SECTOR_BYTES
from agent.storage.secrets import Secrets
from contract.plan import Configuration, Disk, Extent


@dataclass(frozen=True)
class Place:
    """Where a configuration lives: our partition (kernel path and number) of a disk."""

    disk: Disk
    partition: str
    number: int
    extent: Extent

    @property
    def offset_sectors(self) -> int:
        """Where the data begins in the partition."""
        return self.extent.offset_bytes // SECTOR_BYTES

    @property
    def size_sectors(self) -> int:
        """Length of the data."""
        return self.extent.size_bytes // SECTOR_BYTES


@dataclass(frozen=True)
class Segment:
    """A line of a device-mapper table; lengths and offsets in 512-byte sectors.

    `device` is the name of what lies below: a partition's or another mapping's. `key_bits` are of
    the whole key, `iv_offset_sectors` is added to a sector's number before it becomes its tweak.
    """

    length_sectors: int
    target: str
    device: str | None = None
    offset_sectors: int | None = None
    cipher: str | None = None
    key_bits: int | None = None
    sector_size: int | None = None
    iv_offset_sectors: int | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layer:
    """A device-mapper device; `made_by` is the start of its UUID: CRYPT-LUKS2, FDE-TESTBED …"""

    name: str
    made_by: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Expectation:
    """What must be found once a configuration is entered.

    `layers`: every mapping, the one that carries the file system first; `luks_segment`: type of the
    LUKS2 segment, None for no LUKS; `range_state`: of the locking range, where the disk has one;
    `plaintext_on_medium`: whether the raw partition shows the canary; `chain`: of a TrueCrypt
    volume's header.
    """

    layers: tuple[Layer, ...]
    luks_segment: str | None = None
    range_state: str = "off"
    plaintext_on_medium: bool = False
    chain: str | None = None


class Kind(ABC):
    """One kind of configuration; a file of its own, named in `agent.storage.registry`."""

    # What the locking range of a self-encrypting disk must be for this kind: never locking, or
    # (`unlocked`) locking and opened.
    range_state = "off"

    def why_not(self, configuration: Configuration) -> str | None:
        """What the plan leaves out or this machine lacks, with the way out; None if all is there.

        Destroys nothing.
        """
        del configuration
        return None

    @abstractmethod
    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        """What `agent.storage.proof` compares the findings with."""

    def before_attach(self, place: Place, secrets: Secrets) -> dict[str, Any]:
        """Make the place ready; evidence that can only be had while the mapping is closed."""
        del place, secrets
        return {}

    @abstractmethod
    def attach(
        self, place: Place, configuration: Configuration, secrets: Secrets
    ) -> dict[str, Any]:
        """Make the mapping, which may destroy what is in the place; evidence had on the way."""


def partition_name(place: Place) -> str:
    """The partition as a segment names it."""
    return Path(place.partition).name
