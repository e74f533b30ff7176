"""What a kind of storage stack is: how its mapping comes to be, and what must then be true."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from agent.plan import Configuration, Disk, Extent
from agent.storage.secrets import Secrets


@dataclass(frozen=True)
class Place:
    """Where a configuration lives: our partition (kernel path and number) of a disk."""

    disk: Disk
    partition: str
    number: int
    extent: Extent


@dataclass(frozen=True)
class Expectation:
    """What must be found once a configuration is entered.

    `dm_target`: device-mapper's target; `luks_segment`: type of the LUKS2 segment, None for no
    LUKS; `plaintext_on_medium`: whether the raw partition shows the canary.
    """

    dm_target: str
    luks_segment: str | None
    plaintext_on_medium: bool


class Kind(ABC):
    """One kind of configuration; a file of its own, named in `agent.storage.registry`."""

    @abstractmethod
    def expectation(self) -> Expectation:
        """What `agent.storage.proof` compares the findings with."""

    @abstractmethod
    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> None:
        """Make the mapping; may destroy what is in the place."""

    def before_attach(self, place: Place) -> dict[str, Any]:
        """Evidence that can only be had while the mapping is closed."""
        del place
        return {}

    def after_detach(self, place: Place, secrets: Secrets) -> None:
        """Make sure that nothing is left open once the mapping is closed."""
        del place, secrets
