"""dm-crypt with the kernel's null cipher: its queues and copies are paid for, no cipher is.

What it costs more than `plain` is dm-crypt's own; what `dmcrypt` costs more than this, the cipher.
"""

from __future__ import annotations

from typing import ClassVar

from agent.storage import ciphers, mapping
from agent.storage.base import DISCARD, Evidence, Expectation, Kind, Layer, Place
from agent.storage.guard import MAPPING
from agent.storage.secrets import Secrets
from contract.parameters import Parameter
from contract.plan import Configuration

CIPHER = "cipher_null-ecb"
NO_QUEUES = ("no_read_workqueue", "no_write_workqueue")


class DmCryptNull(Kind):
    """Write all unchanged, through dm-crypt."""

    name: ClassVar[str] = "dmcrypt_null"
    fields: ClassVar[tuple[Parameter, ...]] = (
        Parameter("queues", True, "", "whether dm-crypt works in separate queues"),
        DISCARD,
    )

    def label(self, configuration: Configuration) -> str:
        return "dm-crypt null" + ("" if configuration.settings["queues"] else ", no queues")

    def why_not(self, configuration: Configuration) -> str | None:
        return ciphers.missing(CIPHER, configuration)

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        fields = {"cipher": CIPHER, "key_bits": 0, "sector_size": 512, "iv_offset_sectors": 0}
        segment = place.segment("crypt", **fields, options=_options(configuration))
        layer = Layer(MAPPING, mapping.OURS, (segment,))
        return Expectation(layers=(layer,), plaintext_on_medium=True)

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> Evidence:
        del secrets
        options = _options(configuration)
        # "-" is the key of no length (kernel documentation, dm-crypt).
        line = f"0 {place.size_sectors} crypt {CIPHER} - 0 {place.partition} {place.offset_sectors}"
        mapping.create(MAPPING, [" ".join([line, str(len(options)), *options])])
        return Evidence()


def _options(configuration: Configuration) -> tuple[str, ...]:
    queues = () if configuration.settings["queues"] else NO_QUEUES
    return (*(("allow_discards",) if configuration.discard else ()), *queues)
