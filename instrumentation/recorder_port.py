"""Which meter to record: one entry of the inventory, checked."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from instrumentation.choose import UnknownNameError
from instrumentation.meters import registry
from instrumentation.meters.base import Meter, MeterError
from instrumentation.ports import check_form, is_pseudo_terminal

ORIGINS = ("measured", "modelled")


class RecorderError(Exception):
    """The recorder cannot start or go on; one sentence with the way out."""


@dataclass(frozen=True)
class MeterConfig:
    """One entry of `meters` in the resolved target."""

    name: str
    kind: str
    port: str
    baud: int
    origin: str
    channels: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> MeterConfig:
        """The entry, checked. Raises RecorderError."""
        try:
            entry = json.loads(text)
        except ValueError as error:
            raise RecorderError(
                f"--meter is not JSON ({error}); give one entry of meters."
            ) from None
        if not isinstance(entry, dict):
            raise RecorderError("--meter is not an object; give one entry of meters.")
        try:
            baud = entry.get("baud", registry.load(entry["kind"]).default_baud)
            settings = entry.get("settings") or {}
            config = cls(baud=baud, settings=settings, **{k: entry[k] for k in _NEEDED})
        except KeyError as error:
            raise RecorderError(
                f"The meter's entry has no {error}; add it in the inventory."
            ) from None
        except UnknownNameError as error:
            raise RecorderError(str(error)) from None
        config.check()
        return config

    def check(self) -> None:
        """Raises RecorderError where the entry cannot be meant."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", self.name):
            raise RecorderError(f"{self.name!r} cannot name a meter: use letters, digits and - _ .")
        if self.origin not in ORIGINS:
            raise RecorderError(
                f"{self.name}: origin {self.origin!r} is unknown; say measured or modelled."
            )
        if not isinstance(self.baud, int) or self.baud <= 0:
            raise RecorderError(f"{self.name}: {self.baud!r} is no baud rate.")
        try:
            check_form(self.port)
        except ValueError as error:
            raise RecorderError(f"{self.name}: {error}") from None
        if self.origin == "measured" and is_pseudo_terminal(self.port):
            raise RecorderError(
                f"{self.name}: {self.port} is a pseudo-terminal, and a program at its other end is "
                "no instrument: set its origin to modelled, or name the port of a real meter."
            )
        self.driver()

    def driver(self) -> Meter:
        """A fresh driver for this meter. Raises RecorderError."""
        try:
            return registry.load(self.kind)(self.channels, self.settings)
        except MeterError as error:
            raise RecorderError(f"{self.name}: {error}") from None

    def described(self) -> dict[str, Any]:
        """What meter.json says of it."""
        return {
            "format": "fde-meter/2",
            "name": self.name,
            "kind": self.kind,
            "port": self.port,
            "baud": self.baud,
            "origin": self.origin,
            "channels": self.channels,
            **self.driver().described(),
        }


_NEEDED = ("name", "kind", "port", "origin", "channels")
