"""dm-crypt, made again at each switch with a fresh key: under a LUKS2 header, or without one."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from agent.command import run
from agent.storage import ciphers
from agent.storage.base import (
    DISCARD,
    PROCESSOR,
    Expectation,
    Kind,
    Layer,
    Place,
    Segment,
    cipher_label,
    partition_name,
)
from agent.storage.guard import LUKS_LABEL, MAPPING
from agent.storage.secrets import Secrets
from contract.parameters import Parameter
from contract.plan import Configuration

# Key derivation is not what is measured, and the passphrase is random: the fewest rounds allowed.
CHEAP_PBKDF = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
CIPHERS = ("aes", "serpent", "twofish")


class DmCrypt(Kind):
    """The kernel encrypts."""

    name: ClassVar[str] = "dmcrypt"
    encrypted_by: ClassVar[str] = PROCESSOR
    fields: ClassVar[tuple[Parameter, ...]] = (
        Parameter(
            "cipher",
            "aes-xts-plain64",
            "",
            "as cryptsetup names it",
            choices=tuple(f"{cipher}-xts-plain64" for cipher in CIPHERS),
            required=True,
        ),
        Parameter(
            "key_bits",
            256,
            "",
            "the cipher's own key size; XTS keys are twice as long",
            choices=(128, 256),
            required=True,
        ),
        Parameter(
            "sector_size",
            4096,
            "B",
            "what is encrypted at a time",
            choices=(512, 1024, 2048, 4096),
            required=True,
        ),
        Parameter(
            "header", "luks2", "", "LUKS2, or none for plain dm-crypt", choices=("luks2", "none")
        ),
        Parameter(
            "no_read_workqueue", False, "", "decrypt in the caller's context, without a work queue"
        ),
        Parameter(
            "no_write_workqueue", False, "", "encrypt in the caller's context, without a work queue"
        ),
        Parameter(
            *("submit_from_crypt_cpus", False, ""),
            "write requests are submitted by the processors that encrypted them, not by one thread",
        ),
        Parameter(
            "same_cpu_crypt", False, "", "a request is encrypted on the processor that made it"
        ),
        DISCARD,
    )

    def label(self, configuration: Configuration) -> str:
        told = configuration.settings
        parts = [f"dm-crypt {cipher_label(cipher(configuration).split('-')[0])}-{told['key_bits']}"]
        parts += ["no header"] if told["header"] == "none" else []
        parts += [f"{told['sector_size']} B sectors"] if told["sector_size"] != 4096 else []
        queues = told["no_read_workqueue"] or told["no_write_workqueue"]
        parts += ["no queues"] if queues else []
        parts += ["submit from crypt CPUs"] if told["submit_from_crypt_cpus"] else []
        return ", ".join([*parts, *(["same CPU"] if told["same_cpu_crypt"] else [])])

    def why_not(self, configuration: Configuration) -> str | None:
        return ciphers.missing(cipher(configuration), configuration)

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        luks = configuration.settings["header"] == "luks2"
        segment = Segment(
            place.size_sectors,
            "crypt",
            partition_name(place),
            place.offset_sectors,
            cipher=cipher(configuration),
            key_bits=volume_key_bits(configuration),
            sector_size=int(configuration.settings["sector_size"]),
            iv_offset_sectors=0,
            options=options(configuration),
        )
        layer = Layer(MAPPING, "CRYPT-LUKS2" if luks else "CRYPT-PLAIN", (segment,))
        return Expectation(layers=(layer,), luks_segment="crypt" if luks else None)

    def attach(
        self, place: Place, configuration: Configuration, secrets: Secrets
    ) -> dict[str, Any]:
        if configuration.settings["header"] == "luks2":
            run(
                [
                    *("cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2"),
                    *_cipher_arguments(place, configuration),
                    # cryptsetup wipes the whole keyslot area: a small one makes switches short.
                    *("--luks2-keyslots-size", "1m"),
                    *("--label", LUKS_LABEL),
                    *CHEAP_PBKDF,
                    *("--key-file", "-", place.partition),
                ],
                stdin=secrets.luks_passphrase,
            )
            open_luks(place, secrets, open_arguments(configuration))
        else:
            run(
                [
                    *("cryptsetup", "open", "--batch-mode", "--type", "plain"),
                    *_cipher_arguments(place, configuration),
                    *("--size", str(place.size_sectors)),
                    *open_arguments(configuration),
                    *("--key-file", "-", place.partition, MAPPING),
                ],
                stdin=os.urandom(volume_key_bits(configuration) // 8),
            )
        return {}


def cipher(configuration: Configuration) -> str:
    """As cryptsetup names it."""
    return str(configuration.settings["cipher"])


def volume_key_bits(configuration: Configuration) -> int:
    """Bits of the whole volume key."""
    return ciphers.key_factor(cipher(configuration)) * int(configuration.settings["key_bits"])


def options(configuration: Configuration) -> tuple[str, ...]:
    """The mapping's options as the table shows them, sorted."""
    wanted = {
        "allow_discards": configuration.discard,
        "no_read_workqueue": configuration.settings["no_read_workqueue"],
        "no_write_workqueue": configuration.settings["no_write_workqueue"],
        "same_cpu_crypt": configuration.settings["same_cpu_crypt"],
        "submit_from_crypt_cpus": configuration.settings["submit_from_crypt_cpus"],
    }
    return tuple(name for name, is_wanted in sorted(wanted.items()) if is_wanted)


def open_arguments(configuration: Configuration) -> list[str]:
    """The same for cryptsetup; they are no part of a header and act only on opening."""
    named = {"allow_discards": "--allow-discards"}
    return [named.get(name, f"--perf-{name}") for name in options(configuration)]


def open_luks(place: Place, secrets: Secrets, arguments: list[str]) -> None:
    """Open a LUKS2 partition as the mapping; unlocks an Opal range on the way."""
    run(
        [
            *("cryptsetup", "open", "--type", "luks2", *arguments),
            *("--key-file", "-", place.partition, MAPPING),
        ],
        stdin=secrets.luks_passphrase,
    )


def _cipher_arguments(place: Place, configuration: Configuration) -> list[str]:
    return [
        *("--cipher", cipher(configuration)),
        *("--key-size", str(volume_key_bits(configuration))),
        *("--sector-size", str(configuration.settings["sector_size"])),
        *("--offset", str(place.offset_sectors)),
    ]
