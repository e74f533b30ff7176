"""The meters of a new inventory: named on the command line, or recognised at a USB port."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import yaml

from contract.errors import ControllerError
from contract.plan import MeterEntry
from contract.strict_json import Document, Json

Ask = Callable[[str, bool], str]
Origin = Literal["measured", "modelled"]


@dataclass(frozen=True)
class MeterOptions:
    """The options `--meter` and `--setting` of the command line, and the origin of all figures."""

    meters: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    origin: Origin = "measured"

    def settings_of(self, meter: str) -> Document:
        """Return the settings of a meter by its name; raises ControllerError."""
        settings: dict[str, Json] = {}
        for text in self.settings:
            match = re.fullmatch(r"([A-Za-z0-9_-]+)\.([a-z_]+)=(.*)", text, re.DOTALL)
            if match is None:
                raise ControllerError("invalid-setting", text=text)
            if match[1] == meter:
                settings[match[2]] = yaml.safe_load(match[3])
        return settings

    def entry(self, number: int, kind: str, port: str, channels: Mapping[str, str]) -> MeterEntry:
        """Build the entry of a meter with its settings; raises ControllerError."""
        name = f"meter{number}"
        settings = self.settings_of(name) or None
        return MeterEntry(name, kind, port, self.origin, dict(channels), settings=settings)

    def parse(self) -> list[MeterEntry]:
        """Parse the entries of all `meters`; raises ControllerError."""
        return [self.parse_meter(number, text) for number, text in enumerate(self.meters)]

    def parse_meter(self, number: int, text: str) -> MeterEntry:
        """Parse KIND@PORT=CHANNELS, or the address of a meter that answers HTTP.

        A meter at an address is asked for its kind and channels. Raises ControllerError.
        """
        if re.match("https?://", text):
            address, _, channels = text.partition("=")
            return self._recognise_plug(number, address, channels)
        match = re.fullmatch(r"([a-z0-9_]+)@(.+)=([^=]+)", text)
        pairs = [pair.partition(":") for pair in match[3].split(",")] if match else []
        if match is None or not all(channel and name for channel, _, name in pairs):
            raise ControllerError("invalid-meter", text=text)
        named = {channel: name for channel, _, name in pairs}
        return self.entry(number, match[1], match[2], named)

    def _recognise_plug(self, number: int, address: str, channels: str) -> MeterEntry:
        """Recognise a plug by its answer; the default channel `system` is its only or total one."""
        from instrumentation import network
        from instrumentation.ports import check_form

        try:
            check_form(address)
            profile, names = network.recognise_plug(address)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ControllerError("meter-not-recognised", address=address, reason=why) from None
        totals = [name for name in names if len(names) == 1 or name == "total"]
        if not channels and not totals:
            raise ControllerError(
                "channels-not-named", address=address, channels=", ".join(names), first=names[0]
            )
        text = f"http@{address}={channels or totals[0] + ':system'}"
        entry = self.parse_meter(number, text)
        return replace(entry, settings={"profile": profile, **(entry.settings or {})})

    def find(self, ports: Sequence[Any], ask: Ask | None) -> list[MeterEntry]:
        """Build an entry for each port whose USB id belongs to a single kind of meter.

        Channels are typed by the user, or without `ask` are system and drive in this order.
        """
        from instrumentation.meters import registry

        drivers = {kind: registry.load(kind) for kind in registry.kinds()}
        meters: list[MeterEntry] = []
        for port in ports:
            kinds = [kind for kind, driver in drivers.items() if port.usb_id in driver.usb_ids]
            if len(kinds) != 1:
                continue
            names = drivers[kinds[0]].own_channels
            if ask is None:
                channels = dict(zip(names, ("system", "drive"), strict=False))
                meters.append(self.entry(len(meters), kinds[0], port.name, channels))
                continue
            typed = ask(
                f"A {kinds[0]} at {port.label}: what its channels {', '.join(names)} measure, as "
                "0:system,1:drive; empty to leave it out: ",
                False,
            ).strip()
            if typed:
                text = f"{kinds[0]}@{port.name}={typed}"
                meters.append(self.parse_meter(len(meters), text))
        return meters
