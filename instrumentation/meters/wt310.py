"""Driver of the Yokogawa WT310 and WT310E, and of the high-current WT310HC and WT310EH.

Messages: Yokogawa IM WT310E-17EN; intel/yoko-tool, `yokolibs/_wt310.py`. Limits of error: IM
WT310E-02EN and IM WT310-02EN, 7.3.2 (at 45 to 66 Hz, the current measured directly). A window is
one update interval; the meter averages over the whole line cycles in it, which are up to one cycle
less. Its averaging over several updates is switched off, its crest factor set to 3. Not verified
on the meter: the number of digits that it sends, and that its items name the ranges as numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from instrumentation.meters.yokogawa import FIELDS, Yokogawa
from instrumentation.meters.yokogawa_ranges import Limits, RangeSettings

_OLD = Limits(0.001, 0.002, "Yokogawa IM WT310-02EN, 7.3.2")
_E = Limits(0.0005, 0.001, "Yokogawa IM WT310E-02EN, 7.3.2")
_MODELS = {"WT310": _OLD, "WT310HC": _OLD, "WT310E": _E, "WT310EH": _E}
_HIGH_CURRENT = ("WT310HC", "WT310EH")
_ITEMS = ("P,1", "U,1", "I,1", "URANGE,1", "IRANGE,1", "P,1")


@dataclass(frozen=True)
class Settings(RangeSettings):
    """`model` as on the front; the E models err by half as much of the range."""

    model: Literal["WT310", "WT310HC", "WT310E", "WT310EH"] = "WT310"

    @property
    def current_ranges_a(self) -> tuple[float, ...]:
        if self.model in _HIGH_CURRENT:
            return (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
        return super().current_ranges_a


class WT310(Yokogawa):
    """Driver; see `Yokogawa`."""

    kind: ClassVar[str] = "wt310"
    name: ClassVar[str] = "Yokogawa WT310(E)"
    usb_ids: ClassVar[tuple[str, ...]] = ("0b21:0025",)  # other meters of the maker have it too
    Settings: ClassVar[type[Any]] = Settings
    _line_pattern: ClassVar[re.Pattern[str]] = re.compile(
        "{P},{U},{I},{URANGE},{IRANGE},(?P=P);{C}".format(**FIELDS)
    )
    _query = ":NUM:NORM:VAL?;:STAT:COND?"

    @property
    def _limits(self) -> Limits:
        return _MODELS[self.settings.model]

    def _commands(self) -> list[str]:
        return [
            ":STAT:QMES ON",
            ":COMM:HEAD OFF",
            ":COMM:VERB ON",
            ":SYST:COMM:COMM WT300",
            ":STAT:FILT1 FALL;" + ";".join(f"FILT{bit} NEV" for bit in range(2, 16)),
            ":HOLD OFF",
            ":MEAS:AVER:STAT OFF",
            ":INP:MODE RMS",
            ":INP:CFAC 3",
            *self._range_commands(":INP"),
            f":RATE {self.settings.rate_s:g}",
            ":NUM:FORM ASCII",
            f":NUM:NORM:NUM {len(_ITEMS)};"
            + ";".join(f"ITEM{n} {item}" for n, item in enumerate(_ITEMS, 1)),
        ]

    def _is_identity(self, identity: str) -> bool:
        model = identity.upper().split(",")[1].partition("-")[0]
        return super()._is_identity(identity) and model == self.settings.model
