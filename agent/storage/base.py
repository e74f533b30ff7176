"""Kinds of storage stacks: how a kind makes its mapping, and what must then hold."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from agent.storage.devices import SECTOR_BYTES
from agent.storage.secrets import Secrets
from contract.parameters import Parameter, ParameterError, ParameterValue, checked
from contract.plan import CONFIGURATION_KEYS, Configuration, Disk, EncryptedBy, Extent
from contract.schema import nearest
from contract.strict_json import Document


@dataclass(frozen=True)
class Place:
    """The place of a configuration: our partition (kernel path and number) of a disk."""

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

    @property
    def device(self) -> str:
        """The partition as a segment names it."""
        return Path(self.partition).name

    def segment(self, target: str, **fields: Any) -> Segment:
        """Return a segment of the extent itself, with these further fields."""
        return Segment(self.size_sectors, target, self.device, self.offset_sectors, **fields)


@dataclass(frozen=True)
class Segment:
    """A line of a device-mapper table; lengths and offsets in 512-byte sectors.

    In a plan, None is a value that is unknown before the mapping is made.

    `device` is the name of the layer below: a partition's or another mapping's. `key_bits` are of
    the whole key, `iv_offset_sectors` is added to a sector's number before it becomes its tweak.
    """

    length_sectors: int | None
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
    """A device-mapper device; `made_by` is the start of its UUID: CRYPT-LUKS2, FDE-TESTBED ….

    In a plan it is empty for cryptsetup's mappings below its top one, whose UUIDs differ from 2.8
    on.
    """

    name: str
    made_by: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Expectation:
    """The state that a proof must find once a configuration is entered.

    `layers`: every mapping, the one that carries the file system first; `luks_segment`: type of the
    LUKS2 segment, None for no LUKS; `luks_cipher`: its cipher and the algorithm of its tags, if the
    mapping's table names them otherwise; `luks_more_bits`: bits of keys that its keyslots hold in
    addition to the mapping's; `range_state`: of the locking range, if any; `plaintext_on_medium`:
    whether the raw partition shows the plaintext probe; `chain`: of a TrueCrypt volume's header;
    `interleaved`: whether there are other data between the partition's data, so that the probe is
    searched in all places that it can have; `declared`: it is unknown what encrypts, so that a
    proof can refute its claim but not confirm it.
    """

    layers: tuple[Layer, ...]
    luks_segment: str | None = None
    luks_cipher: tuple[str, str] | None = None
    luks_more_bits: int = 0
    range_state: str = "off"
    plaintext_on_medium: bool = False
    chain: str | None = None
    interleaved: bool = False
    declared: bool = False


@dataclass(frozen=True)
class VolumeHeader:
    """A TrueCrypt header as cryptsetup reports it: ciphers, their mode, bits of all keys."""

    chain: str
    mode: str
    key_bits: str


@dataclass(frozen=True)
class Evidence:
    """Observations that are only possible while a mapping is made.

    `state_before` is that of the locking range before it was opened, None without one.
    """

    state_before: str | None = None
    header: VolumeHeader | None = None

    def __or__(self, later: Evidence) -> Evidence:
        return Evidence(later.state_before or self.state_before, later.header or self.header)


@dataclass(frozen=True)
class KindFindings:
    """Observations of one kind; `refused` is the reason why a claim does not hold.

    `product` and `output` are printed by a product's own commands.
    """

    refused: str = ""
    product: str = ""
    output: str = ""


UNENCRYPTED: Final = "none"
DRIVE: Final = "drive"
PROCESSOR: Final = "processor"
BOTH: Final = "both"
DISCARD = Parameter(
    "discard", False, "", "the file system discards what is freed, and every layer passes it on"
)


class Kind(ABC):
    """A kind of configuration, in a module that has its `name`, here or in an installed package.

    `encrypted_by` is one of `UNENCRYPTED`, `DRIVE`, `PROCESSOR`, `BOTH`. `fields` are all
    parameters of the kind except name and disk; `packages` are installed for it on the target
    (Debian's names).
    """

    name: ClassVar[str]
    encrypted_by: ClassVar[EncryptedBy] = UNENCRYPTED
    fields: ClassVar[tuple[Parameter, ...]] = (DISCARD,)
    packages: ClassVar[tuple[str, ...]] = ()
    # Fields that an inventory gives as lists of arguments; kept as JSON text.
    lists: ClassVar[tuple[str, ...]] = ()
    # What the locking range of a self-encrypting disk must be for this kind: never locking, or
    # (`unlocked`) locking and opened.
    range_state = "off"

    @abstractmethod
    def label(self, configuration: Configuration) -> str:
        """Return the name of the configuration in reports.

        Letters, digits, spaces, and `,.-–` in at most 60 characters.
        """

    def why_not(self, configuration: Configuration) -> str | None:
        """Return the sentence on what this machine lacks, with the remedy; None if nothing.

        Destroys nothing.
        """
        del configuration
        return None

    def conflicts(self, settings: Mapping[str, ParameterValue]) -> Iterator[str]:
        """Yield a clause, with the remedy, for each pair of settings that exclude one another."""
        del settings
        return iter(())

    @abstractmethod
    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        """Return the state with which `agent.storage.proof` compares its findings."""

    def before_attach(
        self, place: Place, configuration: Configuration, secrets: Secrets
    ) -> Evidence:
        """Prepare the place while the mapping is closed."""
        del place, configuration, secrets
        return Evidence()

    @abstractmethod
    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> Evidence:
        """Make the mapping, which may destroy the contents of the place."""

    def detach(self, configuration: Configuration) -> None:
        """Remove what `agent.storage.mapping` cannot, if anything of it exists."""
        del configuration

    def findings(self, configuration: Configuration) -> KindFindings:
        """Collect the observations of this kind for the proof."""
        del configuration
        return KindFindings()


def settings(kind: Kind, disk: str, entry: Document) -> tuple[dict[str, ParameterValue], list[str]]:
    """Complete the settings of a configuration by defaults; return them and what is wrong.

    A missing flag is False, a missing value None. A number may be quoted, as Ansible's templates
    yield it.
    """
    stated = {key: value for key, value in entry.items() if value is not None}
    for name in kind.lists:
        if isinstance(stated.get(name), list) and stated[name]:
            stated[name] = json.dumps(stated[name])
    values: dict[str, ParameterValue] = {}
    broken = []
    if kind.range_state != "off" and disk == "plain":
        broken.append(
            f"only a self-encrypting disk can do {kind.name}: disk must be sed, or another name "
            "than plain for one that has Opal"
        )
    for key in sorted(set(stated) - {field.name for field in kind.fields}):
        if stated[key] is not False:
            names = [*CONFIGURATION_KEYS, *(field.name for field in kind.fields)]
            near = nearest(key, names).rstrip(".")
            broken.append(f"{key} means nothing for the kind {kind.name}: {near}")
    if missing := [f.name for f in kind.fields if f.required and f.name not in stated]:
        broken.append(f"the kind {kind.name} needs {', '.join(missing)}")
    for field in kind.fields:
        value = stated.get(field.name, None if field.required else field.default)
        if type(field.default) is int and isinstance(value, str) and value.isdecimal():
            value = int(value)
        try:
            if value is not None:
                values[field.name] = checked(f"{field.name} of the kind {kind.name}", field, value)
        except ParameterError as error:
            broken.append(f"{str(error).rstrip('.')} ({field.help})")
    return values, broken or list(kind.conflicts(values))


def cipher_label(cipher: str) -> str:
    """Return the name of a cipher in reports: AES, Serpent, Twofish."""
    return cipher.upper() if cipher == "aes" else cipher.capitalize()
