"""dm-inlinecrypt (Linux 7.2): the block layer encrypts what it hands to the disk, with blk-crypto.

A disk with an encryption engine would encrypt; without one, blk-crypto's fallback does, on the
processor. Only the fallback has been tried, and a disk with an engine is refused. The kernel's
documentation: admin-guide/device-mapper/dm-inlinecrypt, block/inline-encryption.
"""

from __future__ import annotations

import os
from typing import ClassVar

from agent.storage import ciphers, mapping
from agent.storage.base import (
    DISCARD,
    PROCESSOR,
    Evidence,
    Expectation,
    Kind,
    KindFindings,
    Layer,
    Place,
)
from agent.storage.devices import BLOCK, SECTOR_BYTES, is_whole_disk
from agent.storage.dmcrypt import AES, SECTOR_SIZES, cipher, crypt_fields, volume_key_bits
from agent.storage.guard import MAPPING
from agent.storage.secrets import Secrets
from agent.storage.uses import read_stack
from agent.system.command import run
from contract.parameters import Parameter
from contract.plan import Configuration, EncryptedBy

ANY_STATUS = range(256)


class InlineCrypt(Kind):
    """The block layer encrypts, by its fallback on the processor."""

    name: ClassVar[str] = "inlinecrypt"
    encrypted_by: ClassVar[EncryptedBy] = PROCESSOR
    fields: ClassVar[tuple[Parameter, ...]] = (
        Parameter("cipher", AES, "", "the one that it knows", choices=(AES,)),
        Parameter("key_bits", 256, "", "the cipher's own key size", choices=(256,)),
        Parameter("sector_size", 4096, "B", "what is encrypted at a time", choices=SECTOR_SIZES),
        DISCARD,
    )

    def label(self, configuration: Configuration) -> str:
        small = configuration.settings["sector_size"] != 4096
        sectors = f", {configuration.settings['sector_size']} B sectors" if small else ""
        return f"dm-inlinecrypt AES-256{sectors}"

    def why_not(self, configuration: Configuration) -> str | None:
        run(["modprobe", "--quiet", "dm-inlinecrypt"], ok=ANY_STATUS)
        targets = run(["dmsetup", "targets"]).out.split()
        if self.name not in targets:
            return (
                f"This kernel has no dm-inlinecrypt, which configuration {configuration.name} "
                "needs: take Linux 7.2 or newer with CONFIG_DM_INLINECRYPT, or leave the "
                "configuration out."
            )
        return ciphers.missing(cipher(configuration), configuration)

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        options = tuple(_options(configuration))
        segment = place.segment(self.name, **crypt_fields(configuration), options=options)
        return Expectation(layers=(Layer(MAPPING, mapping.OURS, (segment,)),))

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> Evidence:
        del secrets
        key = os.urandom(volume_key_bits(configuration) // 8).hex()
        options = [*_options(configuration), f"sector_size:{configuration.settings['sector_size']}"]
        words = [0, place.size_sectors, self.name, cipher(configuration), key, 0]
        words += [place.partition, place.offset_sectors, len(options), *options]
        with mapping.free_name() as name:
            mapping.create(name, [" ".join(map(str, words))])
        return Evidence()

    def findings(self, configuration: Configuration) -> KindFindings:
        del configuration
        disks = sorted(filter(is_whole_disk, read_stack().chain(mapping.kernel_name())))
        engines = [disk for disk in disks if (BLOCK / disk / "queue" / "crypto").exists()]
        refused = f"{', '.join(engines)} has an encryption engine, which has not been tried"
        text = f"blk-crypto's fallback: no engine (queue/crypto) in {', '.join(disks)}"
        return KindFindings(refused * bool(engines), "blk-crypto", "" if engines else text)


def _options(configuration: Configuration) -> list[str]:
    """Return the mapping's options but the sectors' size, sorted."""
    large = int(configuration.settings["sector_size"]) > SECTOR_BYTES
    return ["allow_discards"] * configuration.discard + ["iv_large_sectors"] * large
