"""Meters whose answers are JSON: where in it their figures stand, as JSON Pointers (RFC 6901)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instrumentation.meters.networked import (
    ONLY_CHANNEL,
    AnswerError,
    NetworkSettings,
    Reading,
    number,
)

_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_CHANNEL = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True)
class JsonSettings(NetworkSettings):
    """`profile` is the sort of device. Of the generic one: `power`, `energy` and `stamp` as JSON
    Pointers, for several channels `{channel: pointer}`; `""` is the whole document. With `counter:
    false` the meter's own counter is not read.
    """

    profile: str = ""
    power: str | Mapping[str, str] | None = None
    energy: str | Mapping[str, str] | None = None
    stamp: str | None = None
    counter: bool = True

    def check_described(self, needed: tuple[str, ...], *own: str) -> None:
        """Raises ValueError where the settings do not fit the profile: those in `needed` have no
        usual period, and `own` are settings of the generic one.
        """
        if self.profile in needed and (self.period_s is None or self.resolution_w is None):
            raise ValueError(
                f"{self.profile} needs period_s, how often the device gives a new reading, and "
                "resolution_w, the step of what it shows."
            )
        if self.profile == "generic":
            pointers("power", self.power)
            if self.energy is not None:
                pointers("energy", self.energy)
            if self.stamp is not None:
                check_pointer("stamp", self.stamp)
            return
        names = (*own, "power", "energy", "stamp")
        if any(getattr(self, name) for name in names):
            raise ValueError(f"{', '.join(names)} belong to the profile generic.")


@dataclass(frozen=True)
class Places:
    """Pointers to the figures of each channel, and what one unit of them is."""

    power: Mapping[str, str]
    energy: Mapping[str, str]
    power_unit_w: float = 1.0
    energy_unit_j: float = 1.0
    stamps: tuple[str, ...] = ()

    @classmethod
    def described(cls, given: JsonSettings) -> Places:
        """Those of the generic profile."""
        return cls(
            pointers("power", given.power),
            {} if given.energy is None else pointers("energy", given.energy),
            given.power_unit_w,
            given.energy_unit_j,
            () if given.stamp is None else (given.stamp,),
        )

    def reading(self, found: Any, channels: Mapping[str, str], *, counter: bool) -> Reading:
        """What a document says of these channels. Raises AnswerError."""
        power_w = [
            self.power_unit_w * number(value_at(found, self.power[own]), f"power of channel {own}")
            for own in channels
        ]
        energy_j = [
            self.energy_unit_j * number(value_at(found, self.energy[own]), f"energy of {own}")
            for own in channels
            if counter
        ]
        stamps = (value_at(found, place) for place in self.stamps)
        stamp = next((stamp for stamp in stamps if stamp is not None), None)
        if self.stamps and stamp is None:
            where = self.stamps[0]
            raise AnswerError("no-data", f"the answer does not say which reading it is ({where})")
        return Reading(tuple(power_w), tuple(energy_j), "" if stamp is None else str(stamp))


def pointers(name: str, given: object) -> dict[str, str]:
    """A setting that is one pointer or `{channel: pointer}`. Raises ValueError."""
    by_channel = {ONLY_CHANNEL: given} if isinstance(given, str) else given
    if not isinstance(by_channel, Mapping) or not by_channel:
        raise ValueError(
            f"{name} is a JSON Pointer such as /sensor/power, or one for each channel."
        )
    for channel, pointer in by_channel.items():
        if not _CHANNEL.fullmatch(str(channel)):
            raise ValueError(f"{name}: {channel!r} cannot name a channel: use letters and digits.")
        check_pointer(f"{name} of channel {channel}", pointer)
    return {str(channel): pointer for channel, pointer in by_channel.items()}


def check_pointer(name: str, pointer: object) -> None:
    """Raises ValueError where it is none."""
    if not isinstance(pointer, str) or not _POINTER.fullmatch(pointer):
        raise ValueError(f"{name} is {pointer!r}: write a JSON Pointer such as /sensor/power.")


def value_at(document: Any, pointer: str) -> Any:
    """What stands there, None where nothing does. The empty pointer is the whole document.

    Index 0 of what is no list is that itself: Tasmota gives a list for several sockets only.
    """
    found = document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, list) or key != "0":
            return None
    return found
