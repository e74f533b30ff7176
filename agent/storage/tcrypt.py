"""TrueCrypt and VeraCrypt volumes: `tcplay` creates the former, we write the latter's headers.

Cryptsetup opens both, one mapping for each cipher.

A volume has 128 KiB of headers in front of its data and as many behind it. It lies in a container
of dm-linear whose start is chosen so that the data area is exactly the extent of all
configurations; the headers behind it are kept in the area in front of the extent as well.
"""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import threading
import zlib
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
    partition_name,
)
from agent.storage.devices import SECTOR_BYTES, opened
from agent.storage.dmcrypt import cipher
from agent.storage.guard import MAPPING
from agent.storage.secrets import Secrets
from agent.system.command import CommandError, run
from contract import system_text
from contract.parameters import Parameter
from contract.plan import Configuration, EncryptedBy
from workloads.children.kernel_ciphers import Cipher

HEADERS_SECTORS = 128 * 1024 // SECTOR_BYTES
BACKUP_OFFSET_SECTORS = 8 * 2**20 // SECTOR_BYTES
KEY_BITS = 256
# What tcplay knows; the first cipher is the last to be applied and the mapping on top.
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
# Key derivation is not what is measured. All take about as long to create; opening tries them in
# turn unless it is told, and this one is in every crypto library.
_PRF = ("SHA512", "sha512")
_TIMEOUT_S = 60
# VeraCrypt's personal iterations multiplier: 15,000 + 1,000 rounds of PBKDF2 instead of 500,000,
# for the passphrase is random.
_PIM = 1
_ROUNDS = 15_000 + 1_000 * _PIM
_SALT_BYTES, _BODY_BYTES, _KEYS_BYTES, _KEY_BYTES = 64, 448, 256, KEY_BITS // 8
_VERSION, _NEEDS_VERSION = 5, 0x010B
# Magic, version, program, CRC-32 of the keys, 16 unused, hidden volume's size, volume's size,
# start and length of what is encrypted, flags, sector size, 120 unused.
_FIELDS = struct.Struct(">4sHHI16xQQQQII120x")


class TrueCrypt(Kind):
    """The kernel encrypts, once for each cipher of the chain."""

    name: ClassVar[str] = "tcrypt"
    encrypted_by: ClassVar[EncryptedBy] = PROCESSOR
    fields: ClassVar[tuple[Parameter, ...]] = (
        Parameter(
            "cipher", "aes", "", "a cipher, or a cascade of them", choices=CHAINS, required=True
        ),
        Parameter("key_bits", KEY_BITS, "", "of each cipher", choices=(KEY_BITS,), required=True),
        Parameter(
            "volume", "truecrypt", "", "whose header it has", choices=("truecrypt", "veracrypt")
        ),
    )
    packages: ClassVar[tuple[str, ...]] = ("tcplay",)

    def label(self, configuration: Configuration) -> str:
        program = "VeraCrypt" if _is_veracrypt(configuration) else "TrueCrypt"
        return f"{program} {'–'.join(map(cipher_label, _words(configuration)))}-{KEY_BITS}"

    def why_not(self, configuration: Configuration) -> str | None:
        if not _is_veracrypt(configuration):
            try:
                run(["tcplay", "--version"], ok=range(256))
            except CommandError as error:  # missing, or it hangs: not the same thing
                return f"Configuration {configuration.name} needs tcplay. {error}"
        lacks = (ciphers.missing(_dm_cipher(word), configuration) for word in _words(configuration))
        return next((sentence for sentence in lacks if sentence), None)

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        words = _words(configuration)
        names = [MAPPING, *(f"{MAPPING}_{number}" for number in range(1, len(words)))]
        below = [*names[1:], mapping.CONTAINER]
        layers = [
            Layer(
                name,
                "CRYPT-TCRYPT" if name == MAPPING else "",
                (
                    Segment(
                        place.size_sectors,
                        "crypt",
                        device,
                        HEADERS_SECTORS if device == mapping.CONTAINER else 0,
                        cipher=_dm_cipher(word),
                        key_bits=2 * KEY_BITS,
                        sector_size=512,
                        iv_offset_sectors=HEADERS_SECTORS,
                    ),
                ),
            )
            for name, word, device in zip(names, words, below, strict=True)
        ]
        return Expectation(layers=(*layers, _container(place)), chain=cipher(configuration))

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> Evidence:
        del secrets
        lines, start = [], 0
        for segment in _container(place).segments:
            assert segment.length_sectors is not None
            lines.append(
                f"{start} {segment.length_sectors} linear {place.partition} "
                f"{segment.offset_sectors}"
            )
            start += segment.length_sectors
        mapping.create(mapping.CONTAINER, lines)
        path = f"/dev/mapper/{mapping.CONTAINER}"
        passphrase = os.urandom(24).hex().encode()  # TrueCrypt takes 64 characters at most
        veracrypt = _is_veracrypt(configuration)
        if veracrypt:
            data_bytes, keys = place.extent.size_bytes, os.urandom(_KEYS_BYTES)
            with opened(path, os.O_WRONLY) as fd:
                # In front of the data, and behind it the backup, which has a separate salt.
                for offset in (0, HEADERS_SECTORS * SECTOR_BYTES + data_bytes):
                    header = _header(_words(configuration), passphrase, keys, data_bytes)
                    os.pwrite(fd, header, offset)
                os.fsync(fd)
        else:
            _create(path, _words(configuration), passphrase)
        rounds = ("--veracrypt-pim", str(_PIM))
        how = [
            *("--batch-mode", "--type", "tcrypt"),
            *(rounds if veracrypt else ("--disable-veracrypt",)),
            *("--hash", _PRF[1], "--cipher", cipher(configuration)),
        ]
        dumped = run(["cryptsetup", "tcryptDump", *how, path], stdin=passphrase + b"\n").out
        run(["cryptsetup", "open", *how, path, MAPPING], stdin=passphrase + b"\n")
        return Evidence(header=parse_dump(dumped))


def parse_dump(text: str) -> VolumeHeader:
    """Return what cryptsetup reports of a header."""
    pairs = (line.partition(":") for line in text.splitlines())
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    return VolumeHeader(
        *(fields.get(label, "") for label in ("Cipher chain", "Cipher mode", "MK bits"))
    )


def _is_veracrypt(configuration: Configuration) -> bool:
    return configuration.settings["volume"] == "veracrypt"


def _header(words: list[str], passphrase: bytes, keys: bytes, data_bytes: int) -> bytes:
    """512 bytes as VeraCrypt documents them; no program of Debian's writes them.

    `words` are ciphers, the first applied first; `keys` 256 random bytes, of which they take the
    first.

    https://veracrypt.io/en/VeraCrypt%20Volume%20Format%20Specification.html: a salt of 64 bytes,
    then 448 bytes that every cipher of the chain encrypts with XTS as one data unit numbered 0.
    Numbers are big-endian. cryptsetup reads it back, which is the check. Raises OSError, or
    WorkloadError where the kernel lacks a cipher.
    """
    salt = os.urandom(_SALT_BYTES)
    fields = _FIELDS.pack(
        *(b"VERA", _VERSION, _NEEDS_VERSION, zlib.crc32(keys), 0, data_bytes),
        *(HEADERS_SECTORS * SECTOR_BYTES, data_bytes, 0, 512),
    )
    body = fields + struct.pack(">I", zlib.crc32(fields)) + keys
    derived = hashlib.pbkdf2_hmac("sha512", passphrase, salt, _ROUNDS, 2 * _KEY_BYTES * len(words))
    for number, word in enumerate(words):
        # All first keys of the chain come before all second ones, the tweaks'.
        places = (_KEY_BYTES * number, _KEY_BYTES * (number + len(words)))
        key = b"".join(derived[place : place + _KEY_BYTES] for place in places)
        kernel = Cipher(f"xts({word})", key, _BODY_BYTES)
        try:
            body = kernel.encrypted(bytes(16), body)
        finally:
            kernel.close()
    return salt + body


def _words(configuration: Configuration) -> list[str]:
    return cipher(configuration).split("-")


def _dm_cipher(word: str) -> str:
    return f"{word}-xts-plain64"


def _container(place: Place) -> Layer:
    below = partition_name(place)
    data = HEADERS_SECTORS + place.size_sectors
    return Layer(
        mapping.CONTAINER,
        mapping.OURS,
        (
            Segment(data, "linear", below, place.offset_sectors - HEADERS_SECTORS),
            Segment(HEADERS_SECTORS, "linear", below, BACKUP_OFFSET_SECTORS),
        ),
    )


def _create(path: str, words: list[str], passphrase: bytes) -> None:
    """Make the headers; tcplay takes its answers from standard input, one read for each prompt.

    `-z` leaves the data area unchanged. Raises CommandError.
    """
    chain = ",".join(f"{word.upper()}-{KEY_BITS}-XTS" for word in words)
    process = subprocess.Popen(
        ["tcplay", "--create", f"--device={path}", "-z", "-a", _PRF[0], "-b", chain],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,  # a terminal of ours would be asked instead
        env={**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"},
    )
    deadline = threading.Timer(_TIMEOUT_S, process.kill)
    deadline.start()
    try:
        printed = _converse(process, passphrase)
        code = process.wait()
    finally:
        deadline.cancel()
        process.kill()
        process.wait()
    if code:
        words_said = " ".join(system_text.decode(printed).split())[-300:]
        raise CommandError("tcplay-failed", code=code, output=words_said)


def _converse(process: subprocess.Popen[bytes], passphrase: bytes) -> bytes:
    """Answer the prompts in their order; all that was printed, answers are not echoed."""
    assert process.stdin is not None
    assert process.stdout is not None
    printed = b""
    answers = ((b"assphrase: ", passphrase), (b"assphrase: ", passphrase), (b"(y/n) ", b"y"))
    with process.stdin, process.stdout:
        for prompt, answer in answers:
            line = b""
            while not line.endswith(prompt):
                byte = process.stdout.read(1)
                if not byte:
                    return printed + line
                line += byte
            printed += line
            process.stdin.write(answer + b"\n")
        while chunk := process.stdout.read(4096):
            printed += chunk
    return printed
