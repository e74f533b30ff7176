"""dm-crypt, made anew at each switch with a fresh key: under a LUKS2 header, or without one."""

from __future__ import annotations

import os
from typing import Any

from agent.command import run
from agent.storage import ciphers
from agent.storage.base import Expectation, Kind, Layer, Place, Segment, partition_name
from agent.storage.guard import LUKS_LABEL, MAPPING
from agent.storage.secrets import Secrets
from contract.plan import Configuration

# Key derivation is not what is measured, and the passphrase is random: the fewest rounds allowed.
CHEAP_PBKDF = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
HEADERS = ("luks2", "none")
SECTOR_SIZES = (512, 1024, 2048, 4096)


class DmCrypt(Kind):
    """The kernel encrypts."""

    def why_not(self, configuration: Configuration) -> str | None:
        who = f"Configuration {configuration.name}"
        if not (configuration.cipher and configuration.key_bits and configuration.sector_size):
            return (
                f"{who} lacks cipher, key_bits or sector_size: "
                "name them in the inventory's fde_configurations."
            )
        if configuration.header not in HEADERS:
            return f"{who} has header {configuration.header!r}: choose {' or '.join(HEADERS)}."
        if configuration.sector_size not in SECTOR_SIZES:
            return (
                f"{who} has sector_size {configuration.sector_size}: "
                f"choose one of {', '.join(map(str, SECTOR_SIZES))}."
            )
        return ciphers.missing(configuration.cipher, configuration)

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        luks = configuration.header == "luks2"
        segment = Segment(
            place.size_sectors,
            "crypt",
            partition_name(place),
            place.offset_sectors,
            cipher=configuration.cipher,
            key_bits=volume_key_bits(configuration),
            sector_size=configuration.sector_size,
            iv_offset_sectors=0,
            options=options(configuration),
        )
        layer = Layer(MAPPING, "CRYPT-LUKS2" if luks else "CRYPT-PLAIN", (segment,))
        return Expectation(layers=(layer,), luks_segment="crypt" if luks else None)

    def attach(
        self, place: Place, configuration: Configuration, secrets: Secrets
    ) -> dict[str, Any]:
        if configuration.header == "luks2":
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


def volume_key_bits(configuration: Configuration) -> int:
    """Bits of the whole volume key."""
    return ciphers.key_factor(configuration.cipher or "") * (configuration.key_bits or 0)


def options(configuration: Configuration) -> tuple[str, ...]:
    """The mapping's options as the table shows them, sorted."""
    wanted = {
        "allow_discards": configuration.discard,
        "no_read_workqueue": configuration.no_read_workqueue,
        "no_write_workqueue": configuration.no_write_workqueue,
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
        *("--cipher", str(configuration.cipher)),
        *("--key-size", str(volume_key_bits(configuration))),
        *("--sector-size", str(configuration.sector_size)),
        *("--offset", str(place.offset_sectors)),
    ]
