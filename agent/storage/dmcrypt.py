"""dm-crypt, made again at each switch with a fresh key: under a LUKS2 header, or without one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from agent.storage import ciphers, mapping
from agent.storage.base import (
    DISCARD,
    PROCESSOR,
    Evidence,
    Expectation,
    Kind,
    Layer,
    Place,
    Segment,
    cipher_label,
)
from agent.storage.devices import SECTOR_BYTES, opened, progress
from agent.storage.facts import LUKS_LABEL, partition_uuid
from agent.storage.guard import MAPPING
from agent.storage.secrets import Secrets
from agent.system.command import run
from contract.parameters import Parameter, ParameterValue
from contract.plan import Configuration, EncryptedBy

# Key derivation is not what is measured, and the passphrase is random: the fewest rounds allowed.
CHEAP_PBKDF = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
CIPHERS = ("aes", "serpent", "twofish")
# Without XTS: how reports call them, and the bits of key that they take. The first is that of 2011;
# the next three encrypt a sector as one block; the last two make tags with which dm-integrity keeps
# a random nonce.
ESSIV = "aes-cbc-essiv:sha256"
OTHERS = {
    ESSIV: ("AES-CBC-ESSIV", (128, 256)),
    "aes-hctr2-plain64": ("AES-HCTR2", (128, 256)),
    "xchacha12,aes-adiantum-plain64": ("Adiantum, XChaCha12", (256,)),
    "xchacha20,aes-adiantum-plain64": ("Adiantum, XChaCha20", (256,)),
    "aes-gcm-random": ("AES-GCM", (128, 256)),
    "aegis128-random": ("AEGIS", (128,)),
}
# The kernel takes its fastest driver of AES unless one is named (`capi:`): what a processor without
# these instructions would need is a configuration too. Linux 7.0 and later name AES in C so, where
# the processor has no AES instructions; cryptsetup refuses names with brackets behind a dash.
DRIVERS = {
    f"capi:{driver}-plain64": driver
    for driver in (
        "xts-aes-lib",
        "xts-aes-aesni",
        "xts-aes-aesni-avx",
        "xts-aes-vaes-avx2",
        "xts-aes-vaes-avx512",
    )
}
HMAC, AEAD = "hmac-sha256", "aead"
HMAC_BITS = 256
INTEGRITY = f"{MAPPING}_dif"  # as cryptsetup calls it
# What is written with zeros, since what was never written has no tags and cannot be read: both
# ends, where signatures are looked for, and each block group of ext4 begins, whose copies of the
# superblock are written in a part of a block. Wiping all of it, as cryptsetup does unasked, would
# write the whole extent at each switch.
EDGE_BYTES, GROUP_BYTES = 2**20, 128 * 2**20
# How the kernel does it, as cryptsetup's --perf-… name it; no part of a header.
_PERFORMANCE = {
    "no_read_workqueue": "decrypt in the caller's context, without a work queue",
    "no_write_workqueue": "encrypt in the caller's context, without a work queue",
    "submit_from_crypt_cpus": "write requests are submitted by the processors that encrypted them, "
    "not by one thread",
    "same_cpu_crypt": "a request is encrypted on the processor that made it",
}
AES = "aes-xts-plain64"
CHOICES = (*(f"{cipher}-xts-plain64" for cipher in CIPHERS), *OTHERS, *DRIVERS)
SECTOR_SIZES = (512, 1024, 2048, 4096)
_UNIT = "what is encrypted at a time"
_KEY_SIZE = "the cipher's own key size; XTS keys are twice as long"
_HEADERS = "LUKS2, LUKS1 as in 2011, or none for plain dm-crypt"
_TAGS = "tags of each sector, kept by dm-integrity: HMAC's beside the cipher, or the cipher's"
_NO_JOURNAL = "write data and tags without a journal: faster, and a power cut can part them"


class DmCrypt(Kind):
    """The kernel encrypts."""

    name: ClassVar[str] = "dmcrypt"
    encrypted_by: ClassVar[EncryptedBy] = PROCESSOR
    fields: ClassVar[tuple[Parameter, ...]] = (
        Parameter("cipher", AES, "", "as cryptsetup names it", choices=CHOICES, required=True),
        Parameter("key_bits", 256, "", _KEY_SIZE, choices=(128, 256), required=True),
        Parameter("sector_size", 4096, "B", _UNIT, choices=SECTOR_SIZES, required=True),
        Parameter("header", "luks2", "", _HEADERS, choices=("luks2", "luks1", "none")),
        Parameter("integrity", "none", "", _TAGS, choices=("none", HMAC, AEAD)),
        Parameter("integrity_no_journal", False, "", _NO_JOURNAL),
        *(Parameter(name, False, "", text) for name, text in _PERFORMANCE.items()),
        DISCARD,
    )

    def label(self, configuration: Configuration) -> str:
        settings = configuration.settings
        driver = DRIVERS.get(cipher(configuration))
        special_label, _ = OTHERS.get(cipher(configuration), ("AES" if driver else None, ()))
        word = special_label or cipher_label(cipher(configuration).split("-")[0])
        parts = [
            f"dm-crypt {word}-{settings['key_bits']}" if "," not in word else f"dm-crypt {word}"
        ]
        parts += [f"driver {driver}"] if driver else []
        parts += ["HMAC-SHA-256"] if settings["integrity"] == HMAC else []
        parts += ["no journal"] if settings["integrity_no_journal"] else []
        parts += {"luks2": [], "luks1": ["LUKS1"], "none": ["no header"]}[str(settings["header"])]
        parts += [f"{settings['sector_size']} B sectors"] if settings["sector_size"] != 4096 else []
        queues = settings["no_read_workqueue"] or settings["no_write_workqueue"]
        parts += ["no queues"] if queues else []
        parts += ["submit from crypt CPUs"] if settings["submit_from_crypt_cpus"] else []
        return ", ".join([*parts, *(["same CPU"] if settings["same_cpu_crypt"] else [])])

    def why_not(self, configuration: Configuration) -> str | None:
        return ciphers.missing(cipher(configuration), configuration)

    def conflicts(self, settings: Mapping[str, ParameterValue]) -> Iterator[str]:
        name, bits, integrity = (settings[key] for key in ("cipher", "key_bits", "integrity"))
        _, sizes = OTHERS.get(str(name), ("", (128, 256)))
        if bits not in sizes:
            yield f"{name} has keys of {sizes[0]} bits: key_bits must be that, not {bits}"
        if ciphers.authenticates(str(name)) != (integrity == AEAD):
            names = ", ".join(filter(ciphers.authenticates, OTHERS))
            yield f"{name} with integrity {integrity}: aead goes with {names}, and they with it"
        if integrity == "none" and settings["integrity_no_journal"]:
            yield "integrity_no_journal is for dm-integrity: take it out, or name integrity"
        if settings["header"] == "luks1" and settings["sector_size"] != SECTOR_BYTES:
            yield f"LUKS1 has sectors of {SECTOR_BYTES} B alone: sector_size must be that"
        if integrity != "none" and settings["header"] != "luks2":
            yield "cryptsetup keeps tags under a LUKS2 header alone: header must be luks2"
        if integrity != "none" and settings["discard"]:
            yield "discarded sectors have no tags, and dm-crypt passes none on: take discard out"

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        if configuration.settings["integrity"] != "none":
            return _authenticated(place, configuration)
        header = str(configuration.settings["header"])
        fields = crypt_fields(configuration)
        segment = place.segment("crypt", **fields, options=options(configuration))
        makers = {"luks2": "CRYPT-LUKS2", "luks1": "CRYPT-LUKS1", "none": "CRYPT-PLAIN"}
        layer = Layer(MAPPING, makers[header], (segment,))
        return Expectation(layers=(layer,), luks_segment="crypt" if header == "luks2" else None)

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> Evidence:
        header = str(configuration.settings["header"])
        integrity = str(configuration.settings["integrity"])
        arguments = ["--cipher", cipher(configuration)]
        arguments += ["--key-size", str(volume_key_bits(configuration))]
        arguments += ["--sector-size", str(configuration.settings["sector_size"])]
        arguments += ["--offset", str(place.offset_sectors)]
        if integrity != "none":
            arguments += ["--integrity", integrity, "--integrity-no-wipe"]
        if header == "none":
            arguments += ["--size", str(place.size_sectors), *open_arguments(configuration)]
            key = os.urandom(volume_key_bits(configuration) // 8)
            open_with(["--batch-mode", "--type", "plain", *arguments], place, key)
            return Evidence()
        # cryptsetup wipes the whole keyslot area: a small one makes switches short.
        format_options = {
            "luks1": ["--uuid", partition_uuid(place.disk.serial)],
            "luks2": ["--luks2-keyslots-size", "1m", "--label", LUKS_LABEL],
        }
        argv = ["cryptsetup", "luksFormat", "--batch-mode", "--type", header, *arguments]
        argv += [*format_options[header], *CHEAP_PBKDF, "--key-file", "-", place.partition]
        run(argv, stdin=secrets.luks_passphrase, progress=progress(place.partition))
        open_luks(place, secrets, open_arguments(configuration))
        if integrity != "none":
            with opened(mapping.PATH, os.O_RDWR) as fd:
                size = os.lseek(fd, 0, os.SEEK_END)
                for offset in (*range(0, size - EDGE_BYTES, GROUP_BYTES), size - EDGE_BYTES):
                    os.pwrite(fd, bytes(EDGE_BYTES), offset)
                os.fsync(fd)
        return Evidence()


def cipher(configuration: Configuration) -> str:
    """Return the cipher by cryptsetup's name."""
    return str(configuration.settings["cipher"])


def volume_key_bits(configuration: Configuration) -> int:
    """Return the bits of the whole volume key, without those of an HMAC."""
    return ciphers.key_factor(cipher(configuration)) * int(configuration.settings["key_bits"])


def crypt_fields(configuration: Configuration) -> dict[str, Any]:
    """Return the fields of an encrypting segment that follow from its configuration."""
    return {
        "cipher": cipher(configuration),
        "key_bits": volume_key_bits(configuration),
        "sector_size": int(configuration.settings["sector_size"]),
        "iv_offset_sectors": 0,
    }


def _authenticated(place: Place, configuration: Configuration) -> Expectation:
    """Expect the cipher's mapping above dm-integrity's, which keeps tags between the data."""
    settings = configuration.settings
    name = ciphers.algorithm(cipher(configuration))
    of_hmac = settings["integrity"] == HMAC
    nonce = cipher(configuration).rpartition("-")[2]
    # What cryptsetup keeps of a sector: HMAC-SHA-256, or the tag and the nonce of the cipher.
    of_cipher = 16 + (12 if name == "gcm(aes)" else 16)
    tag_bytes = HMAC_BITS // 8 if of_hmac else of_cipher
    fields = crypt_fields(configuration)
    fields["cipher"] = f"capi:{f'authenc(hmac(sha256),{name})' if of_hmac else name}-{nonce}"
    fields["key_bits"] += HMAC_BITS if of_hmac else 0
    shown = tuple(sorted((*options(configuration), f"integrity:{tag_bytes}:aead")))
    crypt = Segment(None, "crypt", INTEGRITY, 0, **fields, options=shown)
    mode = f"mode:{'D' if settings['integrity_no_journal'] else 'J'}"
    tags = replace(place.segment("integrity"), length_sectors=None, options=(mode,))
    return Expectation(
        layers=(Layer(MAPPING, "CRYPT-LUKS2", (crypt,)), Layer(INTEGRITY, "", (tags,))),
        luks_segment="crypt",
        luks_cipher=(cipher(configuration), "hmac(sha256)" if of_hmac else AEAD),
        interleaved=True,
    )


def options(configuration: Configuration) -> tuple[str, ...]:
    """Return the mapping's options as the table shows them, sorted."""
    flags = [name for name in _PERFORMANCE if configuration.settings[name]]
    return tuple(sorted([*flags, *(["allow_discards"] if configuration.discard else [])]))


def open_arguments(configuration: Configuration) -> list[str]:
    """Return cryptsetup's arguments for those options; they are not stored in a header."""
    named = {"allow_discards": "--allow-discards"}
    without = ["--integrity-no-journal"] if configuration.settings["integrity_no_journal"] else []
    return without + [named.get(name, f"--perf-{name}") for name in options(configuration)]


def open_luks(place: Place, secrets: Secrets, arguments: list[str]) -> None:
    """Open a LUKS partition as the mapping; unlocks an Opal range on the way."""
    open_with(["--type", "luks", *arguments], place, secrets.luks_passphrase)


def open_with(arguments: list[str], place: Place, key: bytes) -> None:
    """Open the partition with cryptsetup as the mapping."""
    with mapping.free_name() as name:
        argv = ["cryptsetup", "open", *arguments, "--key-file", "-", place.partition, name]
        run(argv, stdin=key)
