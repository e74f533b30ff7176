"""The Yokogawa WT310's side of the line; what it answers is described in `meters.wt310`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from instrumentation.simulators.yokogawa import YokogawaSimulator


class WT310Simulator(YokogawaSimulator):
    """A WT310E; its items for output are set one by one."""

    kind: ClassVar[str] = "wt310"

    def __init__(self, *, model: str = "WT310E", **settings: Any) -> None:
        super().__init__(**settings)
        self.model = model
        self._items = ["U", "I", "P", "S", "Q", "LAMBDA", "PHI", "FU", "FI", "NONE"]
        self._item_count = 3

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**super().settings, "model": self.model}

    def _identity(self) -> str:
        return f"YOKOGAWA,{self.model},C2TE00000V,F1.04"

    def _own(self) -> dict[str, Any]:
        return {
            ":SYSTem:COMMunicate:COMMand": self._nothing,
            ":HOLD": self._set_hold,
            ":MEASure:AVERaging:STATe": self._nothing,
            ":INPut:MODE": self._nothing,
            ":INPut:CFACtor": self._nothing,
            ":INPut:VOLTage:AUTO": partial(self._set_auto, self.volts),
            ":INPut:VOLTage:RANGe": partial(self._set_range, self.volts),
            ":INPut:CURRent:AUTO": partial(self._set_auto, self.amperes),
            ":INPut:CURRent:RANGe": partial(self._set_range, self.amperes),
            ":RATE": self._set_rate,
            ":NUMeric:FORMat": self._nothing,
            ":NUMeric:NORMal:NUMber": self._set_item_count,
            **{
                f":NUMeric:NORMal:ITEM{n + 1}": partial(self._set_item, n)
                for n in range(len(self._items))
            },
            ":NUMeric:NORMal:VALue?": lambda _: self.values(*self._items[: self._item_count]),
        }

    def _set_item_count(self, value: str) -> str:
        self._item_count = int(value)
        return ""

    def _set_item(self, at: int, value: str) -> str:
        self._items[at] = value.upper().removesuffix(",1")
        return ""
