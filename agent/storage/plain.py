"""No encryption: dm-linear on the extent, so that all configurations pass through device-mapper."""

from __future__ import annotations

from typing import ClassVar

from agent.storage import mapping
from agent.storage.base import Evidence, Expectation, Kind, Layer, Place
from agent.storage.guard import MAPPING
from agent.storage.secrets import Secrets
from contract.plan import Configuration


class Plain(Kind):
    """The baseline; on a self-encrypting disk, the disk with its locking switched off."""

    name: ClassVar[str] = "plain"

    def label(self, configuration: Configuration) -> str:
        return "SED, locking off" if configuration.disk == "sed" else "plain"

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        del configuration
        layer = Layer(MAPPING, mapping.OURS, (place.segment("linear"),))
        return Expectation(layers=(layer,), plaintext_on_medium=True)

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> Evidence:
        del configuration, secrets
        line = f"0 {place.size_sectors} linear {place.partition} {place.offset_sectors}"
        with mapping.free_name() as name:
            mapping.create(name, [line])
        return Evidence()
