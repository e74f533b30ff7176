"""TrueCrypt and VeraCrypt volumes: we write their headers, cryptsetup opens them.

There is one mapping for each cipher. A volume has 128 KiB of headers in front of its data and as
many behind it. It is in a dm-linear container whose start is chosen so that the data area is
exactly the extent of all configurations; the headers behind it are stored in the area in front of
the extent as well.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from dataclasses import dataclass
from typing import ClassVar

from agent.storage import ciphers, mapping
from agent.storage.base import (
    PROCESSOR,
    Evidence,
    Expectation,
    Kind,
    Layer,
    Place,
    Segment,
    VolumeHeader,
    cipher_label,
)
from agent.storage.devices import SECTOR_BYTES, opened
from agent.storage.dmcrypt import cipher
from agent.storage.guard import MAPPING
from agent.storage.secrets import Secrets
from agent.system.command import run
from contract.parameters import Parameter
from contract.plan import Configuration, EncryptedBy
from workloads.children.kernel_ciphers import sector_cipher

HEADERS_SECTORS = 128 * 1024 // SECTOR_BYTES
BACKUP_OFFSET_SECTORS = 8 * 2**20 // SECTOR_BYTES
KEY_BITS = 256
# The cascades of both; the first cipher is the last to be applied and the mapping on top.
CHAINS = (
    "aes",
    "serpent",
    "twofish",
    "aes-serpent",
    "aes-twofish-serpent",
    "serpent-twofish",
    "serpent-twofish-aes",
    "twofish-aes",
)
# VeraCrypt's personal iterations multiplier: 15,000 + 1,000 rounds of PBKDF2 instead of 500,000,
# for the passphrase is random, and key derivation is not what is measured.
_PIM = 1


@dataclass(frozen=True)
class _Format:
    """A volume format: its magic, its rounds of PBKDF2 (SHA-512), cryptsetup's options."""

    name: str
    magic: bytes
    needs_version: int
    rounds: int
    how: tuple[str, ...]


_FORMATS = {
    "truecrypt": _Format("TrueCrypt", b"TRUE", 0x0700, 1000, ("--disable-veracrypt",)),
    "veracrypt": _Format(
        "VeraCrypt", b"VERA", 0x010B, 15_000 + 1_000 * _PIM, ("--veracrypt-pim", str(_PIM))
    ),
}
_SALT_BYTES, _BODY_BYTES, _KEYS_BYTES, _KEY_BYTES = 64, 448, 256, KEY_BITS // 8
_VERSION = 5
# Magic, version, program, CRC-32 of the keys, 16 unused, hidden volume's size, volume's size,
# start and length of what is encrypted, flags, sector size, 120 unused.
_FIELDS = struct.Struct(">4sHHI16xQQQQII120x")


class TrueCrypt(Kind):
    """The kernel encrypts, once for each cipher of the chain."""

    name: ClassVar[str] = "tcrypt"
    encrypted_by: ClassVar[EncryptedBy] = PROCESSOR
    fields: ClassVar[tuple[Parameter, ...]] = (
        Parameter("cipher", "aes", "", "a cipher or a cascade", choices=CHAINS, required=True),
        Parameter("key_bits", KEY_BITS, "", "of each cipher", choices=(KEY_BITS,), required=True),
        Parameter("volume", "truecrypt", "", "whose header it has", choices=tuple(_FORMATS)),
    )

    def label(self, configuration: Configuration) -> str:
        chain = "–".join(map(cipher_label, _words(configuration)))
        return f"{_format(configuration).name} {chain}-{KEY_BITS}"

    def why_not(self, configuration: Configuration) -> str | None:
        lacks = (ciphers.missing(_dm_cipher(word), configuration) for word in _words(configuration))
        return next((sentence for sentence in lacks if sentence), None)

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        words = _words(configuration)
        names = [MAPPING, *(f"{MAPPING}_{number}" for number in range(1, len(words)))]
        below = [*names[1:], mapping.CONTAINER]
        layers = []
        for name, word, device in zip(names, words, below, strict=True):
            offset = HEADERS_SECTORS if device == mapping.CONTAINER else 0
            segment = Segment(
                *(place.size_sectors, "crypt", device, offset, _dm_cipher(word), 2 * KEY_BITS, 512),
                iv_offset_sectors=HEADERS_SECTORS,
            )
            layers.append(Layer(name, "CRYPT-TCRYPT" if name == MAPPING else "", (segment,)))
        return Expectation(layers=(*layers, _container(place)), chain=cipher(configuration))

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> Evidence:
        del secrets
        lines, start = [], 0
        for segment in _container(place).segments:
            assert segment.length_sectors is not None
            words = (start, segment.length_sectors, "linear", place.partition)
            lines.append(" ".join(map(str, (*words, segment.offset_sectors))))
            start += segment.length_sectors
        with mapping.free_name(mapping.CONTAINER) as name:
            mapping.create(name, lines)
        path = f"/dev/mapper/{mapping.CONTAINER}"
        passphrase = os.urandom(24).hex().encode()  # TrueCrypt takes 64 characters at most
        data_bytes, keys = place.extent.size_bytes, os.urandom(_KEYS_BYTES)
        with opened(path, os.O_WRONLY) as fd:
            # In front of the data, and behind it the backup, which has a separate salt.
            for offset in (0, HEADERS_SECTORS * SECTOR_BYTES + data_bytes):
                os.pwrite(fd, _header(configuration, passphrase, keys, data_bytes), offset)
            os.fsync(fd)
        arguments = ["--batch-mode", "--type", "tcrypt", *_format(configuration).how]
        arguments += ["--hash", "sha512", "--cipher", cipher(configuration)]
        dumped = run(["cryptsetup", "tcryptDump", *arguments, path], stdin=passphrase + b"\n").out
        with mapping.free_name() as name:
            run(["cryptsetup", "open", *arguments, path, name], stdin=passphrase + b"\n")
        return Evidence(header=parse_dump(dumped))


def parse_dump(text: str) -> VolumeHeader:
    """Parse cryptsetup's report of a header."""
    pairs = (line.partition(":") for line in text.splitlines())
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    return VolumeHeader(
        *(fields.get(label, "") for label in ("Cipher chain", "Cipher mode", "MK bits"))
    )


def _format(configuration: Configuration) -> _Format:
    return _FORMATS[str(configuration.settings["volume"])]


def _header(configuration: Configuration, passphrase: bytes, keys: bytes, data_bytes: int) -> bytes:
    """Return the 512 bytes of a header as VeraCrypt, following TrueCrypt, documents them.

    `keys` are 256 random bytes, of which the ciphers take the first.

    https://veracrypt.io/en/VeraCrypt%20Volume%20Format%20Specification.html: a salt of 64 bytes,
    then 448 bytes that every cipher of the chain encrypts with XTS as one data unit numbered 0.
    Numbers are big-endian. cryptsetup reads it back, which is the check. Raises OSError, or
    WorkloadError where the kernel lacks a cipher.
    """
    program, words = _format(configuration), _words(configuration)
    salt = os.urandom(_SALT_BYTES)
    fields = _FIELDS.pack(
        *(program.magic, _VERSION, program.needs_version, zlib.crc32(keys), 0, data_bytes),
        *(HEADERS_SECTORS * SECTOR_BYTES, data_bytes, 0, 512),
    )
    body = fields + struct.pack(">I", zlib.crc32(fields)) + keys
    length = 2 * _KEY_BYTES * len(words)
    derived = hashlib.pbkdf2_hmac("sha512", passphrase, salt, program.rounds, length)
    for number, word in enumerate(words):
        # All first keys of the chain come before all second ones, the tweaks'.
        places = (_KEY_BYTES * number, _KEY_BYTES * (number + len(words)))
        key = b"".join(derived[place : place + _KEY_BYTES] for place in places)
        with sector_cipher(_dm_cipher(word), key) as encrypt:
            body = encrypt(body.ljust(SECTOR_BYTES, b"\0"))[:_BODY_BYTES]
    return salt + body


def _words(configuration: Configuration) -> list[str]:
    return cipher(configuration).split("-")


def _dm_cipher(word: str) -> str:
    return f"{word}-xts-plain64"


def _container(place: Place) -> Layer:
    length, start = HEADERS_SECTORS + place.size_sectors, place.offset_sectors - HEADERS_SECTORS
    data = Segment(length, "linear", place.device, start)
    backup = Segment(HEADERS_SECTORS, "linear", place.device, BACKUP_OFFSET_SECTORS)
    return Layer(mapping.CONTAINER, mapping.OURS, (data, backup))
