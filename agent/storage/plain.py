"""No encryption: dm-linear on the extent, so that all configurations pass through device-mapper."""

from __future__ import annotations

from agent.command import run
from agent.plan import Configuration
from agent.storage.base import Expectation, Kind, Place
from agent.storage.devices import SECTOR_BYTES
from agent.storage.guard import MAPPING
from agent.storage.secrets import Secrets


class Plain(Kind):
    """The baseline."""

    def expectation(self) -> Expectation:
        return Expectation(dm_target="linear", luks_segment=None, plaintext_on_medium=True)

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> None:
        del configuration, secrets
        sectors = place.extent.size_bytes // SECTOR_BYTES
        offset = place.extent.offset_bytes // SECTOR_BYTES
        run(
            ["dmsetup", "create", MAPPING, "--uuid", f"FDE-TESTBED-{MAPPING}"],
            stdin=f"0 {sectors} linear {place.partition} {offset}\n".encode(),
        )
