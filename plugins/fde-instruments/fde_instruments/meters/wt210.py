"""Driver of the Yokogawa WT210 in its IEEE 488.2 mode (menu `LOCAL`; older modes differ).

Messages: Yokogawa IM 760401-01E, chapter 14; intel/yoko-tool, `yokolibs/_wt210.py`. The items that
are switched on come in a fixed order, and none twice, so the whole line is asked for twice. A
window is one update interval. Not verified on the meter: that the bits of its condition are those
of the WT110, and the limits of error, which are taken to be those of the WT310 that followed it.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from instrumentation.meters.yokogawa import FIELDS, Yokogawa
from instrumentation.meters.yokogawa_ranges import Limits, RangeSettings

_WANTED = ("V", "A", "W")
_ITEMS = (
    *_WANTED,
    *("VA", "VAR", "PF", "DEGR", "VHZ", "AHZ", "WH", "WHP", "WHM", "AH", "AHP", "AHM"),
    *("MATH", "TIME", "VPK", "APK"),
)


class WT210(Yokogawa):
    """Driver; see `Yokogawa`."""

    kind: ClassVar[str] = "wt210"
    name: ClassVar[str] = "Yokogawa WT210"
    usb_ids: ClassVar[tuple[str, ...]] = ()  # it has no USB, and any adapter may be before it
    Settings: ClassVar[type[Any]] = RangeSettings
    _line_pattern: ClassVar[re.Pattern[str]] = re.compile(
        "{U},{I},{P};(?P=U),(?P=I),(?P=P);{URANGE};{IRANGE};{C}".format(**FIELDS)
    )
    _query = ":MEAS:VAL?;:MEAS:VAL?;:CONF:VOLT:RANG?;:CONF:CURR:RANG?;:STAT:COND?"
    _limits = Limits(
        0.001, None, "as the WT310 that followed it (Yokogawa IM WT310-02EN, 7.3.2); unverified"
    )

    def _commands(self) -> list[str]:
        return [
            ":COMM:REM ON",
            ":STAT:QMES ON",
            ":COMM:HEAD OFF",
            ":COMM:VERB ON",
            ":STAT:FILT1 FALL;" + ";".join(f"FILT{bit} NEV" for bit in range(2, 16)),
            ":SAMP:HOLD OFF",
            ":CONF:AVER:STAT OFF",
            ":CONF:MODE RMS",
            ":CONF:CFAC 3",
            *self._range_commands(":CONF"),
            f":SAMP:RATE {self.settings.rate_s:g}",
            ":MEAS:ITEM:"
            + ";".join(f"{item} {'ON' if item in _WANTED else 'OFF'}" for item in _ITEMS),
        ]

    def stop_command(self) -> bytes:
        """Return the command that enables the meter's keys again."""
        return b":COMM:REM OFF\r\n"
