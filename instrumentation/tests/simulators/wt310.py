"""Simulator of the Yokogawa WT310; its answers are described in `meters.wt310`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from contract.strict_json import Document
from instrumentation.tests.simulators.yokogawa import (
    Actions,
    YokogawaSimulator,
    is_on,
    nothing,
    put,
)


class WT310Simulator(YokogawaSimulator):
    """A simulated WT310E, whose output items are set one by one."""

    kind: ClassVar[str] = "wt310"

    def __init__(self, *, model: str = "WT310E", **settings: Any) -> None:
        super().__init__(**settings)
        self.model = model
        self._items = ["U", "I", "P", "S", "Q", "LAMBDA", "PHI", "FU", "FI", "NONE"]
        self._item_count = 3

    @property
    def settings(self) -> Document:
        return {**super().settings, "model": self.model}

    def _identity(self) -> str:
        return f"YOKOGAWA,{self.model},C2TE00000V,F1.04"

    def _actions(self) -> Actions:
        return {
            ":SYSTem:COMMunicate:COMMand": nothing,
            ":HOLD": partial(put, self, "hold", is_on),
            ":MEASure:AVERaging:STATe": nothing,
            **self._inputs(":INPut"),
            ":RATE": self._set_rate,
            ":NUMeric:FORMat": nothing,
            ":NUMeric:NORMal:NUMber": partial(put, self, "_item_count", int),
            **{
                f":NUMeric:NORMal:ITEM{n + 1}": partial(self._set_item, n)
                for n in range(len(self._items))
            },
            ":NUMeric:NORMal:VALue?": lambda _: self.values(*self._items[: self._item_count]),
        }

    def _set_item(self, at: int, value: str) -> None:
        self._items[at] = value.upper().removesuffix(",1")
