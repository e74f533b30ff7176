"""dm-crypt under LUKS2, formatted anew at each switch: every block has a fresh key."""

from __future__ import annotations

from agent.command import run
from agent.errors import AgentError
from agent.plan import Configuration
from agent.storage.base import Expectation, Kind, Place
from agent.storage.devices import SECTOR_BYTES
from agent.storage.guard import LUKS_LABEL, MAPPING
from agent.storage.secrets import Secrets

# Key derivation is not what is measured, and the passphrase is random: the fewest rounds allowed.
CHEAP_PBKDF = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")


class DmCrypt(Kind):
    """The kernel encrypts."""

    def expectation(self) -> Expectation:
        return Expectation(dm_target="crypt", luks_segment="crypt", plaintext_on_medium=False)

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> None:
        if not (configuration.cipher and configuration.key_bits and configuration.sector_size):
            raise AgentError(
                f"Configuration {configuration.name} lacks cipher, key_bits or sector_size: "
                "name them in the inventory."
            )
        run(
            [
                *("cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2"),
                *("--cipher", configuration.cipher),
                # XTS takes two keys of the cipher's size.
                *("--key-size", str(xts_bits(configuration))),
                *("--sector-size", str(configuration.sector_size)),
                *("--offset", str(place.extent.offset_bytes // SECTOR_BYTES)),
                # cryptsetup wipes the whole keyslot area twice: a small one makes switches short.
                *("--luks2-keyslots-size", "1m"),
                *("--label", LUKS_LABEL),
                *CHEAP_PBKDF,
                *("--key-file", "-", place.partition),
            ],
            stdin=secrets.luks_passphrase,
        )
        open_luks(place, secrets)


def xts_bits(configuration: Configuration) -> int:
    """Bits of the whole volume key: two keys for XTS, one for other modes."""
    factor = 2 if "-xts-" in f"{configuration.cipher}-" else 1
    return factor * (configuration.key_bits or 0)


def open_luks(place: Place, secrets: Secrets) -> None:
    """Open a LUKS2 partition as the mapping; unlocks an Opal range on the way."""
    run(
        ["cryptsetup", "open", "--type", "luks2", "--key-file", "-", place.partition, MAPPING],
        stdin=secrets.luks_passphrase,
    )
