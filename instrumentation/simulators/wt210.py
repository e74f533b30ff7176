"""The Yokogawa WT210's side of the line; what it answers is described in `meters.wt210`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from instrumentation.simulators.yokogawa import Actions, YokogawaSimulator, is_on, nothing, nr3

_ITEMS = (
    *("V", "A", "W", "VA", "VAR", "PF", "DEGR", "VHZ", "AHZ", "WH", "WHP", "WHM"),
    *("AH", "AHP", "AHM", "MATH", "TIME", "VPK", "APK"),
)
_MEASURED = {"V": "U", "A": "I", "W": "P"}


class WT210Simulator(YokogawaSimulator):
    """Its items for output are switched on and off, and come in their own order."""

    kind: ClassVar[str] = "wt210"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.remote = False
        self._on = dict.fromkeys(_ITEMS, True)

    def _identity(self) -> str:
        return "YOKOGAWA,760401,0,F2.01"

    def _actions(self) -> Actions:
        return {
            ":COMMunicate:REMote": self._set_remote,
            ":SAMPle:HOLD": self._set_hold,
            ":SAMPle:RATE": self._set_rate,
            ":CONFigure:AVERaging:STATe": nothing,
            **self._inputs(":CONFigure"),
            ":CONFigure:VOLTage:RANGe?": lambda _: self._range(":CONF:VOLT:RANG", 0),
            ":CONFigure:CURRent:RANGe?": lambda _: self._range(":CONF:CURR:RANG", 1),
            **{f":MEASure:ITEM:{item}": partial(self._switch, item) for item in _ITEMS},
            ":MEASure:VALue?": lambda _: self.values(
                *(_MEASURED.get(item, "") for item in _ITEMS if self._on[item])
            ),
        }

    def _set_remote(self, value: str) -> None:
        self.remote = is_on(value)

    def _switch(self, item: str, value: str) -> None:
        self._on[item] = is_on(value)

    def _range(self, header: str, which: int) -> str:
        shown = self.shown_ranges[which]
        return self._headed(header, nr3(shown, shown))
