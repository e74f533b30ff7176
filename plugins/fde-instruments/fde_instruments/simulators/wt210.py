"""Simulator of the Yokogawa WT210; its answers are described in `meters.wt210`."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

from instrumentation.tests.simulators.yokogawa import (
    Actions,
    YokogawaSimulator,
    is_on,
    nothing,
    nr3,
    put,
)

_ITEMS = (
    *("V", "A", "W", "VA", "VAR", "PF", "DEGR", "VHZ", "AHZ", "WH", "WHP", "WHM"),
    *("AH", "AHP", "AHM", "MATH", "TIME", "VPK", "APK"),
)
_MEASURED = {"V": "U", "A": "I", "W": "P"}


class WT210Simulator(YokogawaSimulator):
    """A simulated WT210, whose output items are switched on and off and come in a fixed order."""

    kind: ClassVar[str] = "wt210"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.remote = False
        self._on = SimpleNamespace(**dict.fromkeys(_ITEMS, True))

    def _identity(self) -> str:
        return "YOKOGAWA,760401,0,F2.01"

    def _actions(self) -> Actions:
        return {
            ":COMMunicate:REMote": partial(put, self, "remote", is_on),
            ":SAMPle:HOLD": partial(put, self, "hold", is_on),
            ":SAMPle:RATE": self._set_rate,
            ":CONFigure:AVERaging:STATe": nothing,
            **self._inputs(":CONFigure"),
            ":CONFigure:VOLTage:RANGe?": lambda _: self._range(":CONF:VOLT:RANG", 0),
            ":CONFigure:CURRent:RANGe?": lambda _: self._range(":CONF:CURR:RANG", 1),
            **{f":MEASure:ITEM:{item}": partial(put, self._on, item, is_on) for item in _ITEMS},
            ":MEASure:VALue?": lambda _: self.values(
                *(_MEASURED.get(item, "") for item, on in vars(self._on).items() if on)
            ),
        }

    def _range(self, header: str, which: int) -> str:
        shown = self.shown_ranges[which]
        return self._headed(header, nr3(shown, shown))
