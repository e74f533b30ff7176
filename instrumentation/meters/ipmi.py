"""Driver of a machine's management controller (BMC): DCMI's power reading by IPMI and ipmitool.

The text is that of ipmitool 1.8 (lib/ipmi_dcmi.c, `ipmi_dcmi_pwr_rd`), in whole watts. How often
the controller refreshes it, over which time it is averaged and its limits of error are not stated.
Untried on a real controller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from instrumentation.meters.answers import Answer
from instrumentation.meters.networked import (
    ONLY_CHANNEL,
    AnswerError,
    Networked,
    NetworkSettings,
    Period,
    Reading,
    number,
)

QUESTION = b"dcmi power reading\n"
_POWER = re.compile(rb"Instantaneous power reading:\s+(\d+) Watts")
_ACTIVE = re.compile(rb"Power reading state is:\s+activated")


@dataclass(frozen=True, kw_only=True)
class Settings(NetworkSettings):
    """See `NetworkSettings`; `secret_file` holds `user:password`."""

    period_s: Period = field()


class IpmiMeter(Networked):
    """Driver; see `Networked`. Its one channel, `0`, is the machine."""

    kind: ClassVar[str] = "ipmi"
    name: ClassVar[str] = "machine's own controller (IPMI, DCMI)"
    addresses: ClassVar[tuple[str, ...]] = ("ipmi",)
    own_channels: ClassVar[tuple[str, ...]] = (ONLY_CHANNEL,)
    Settings: ClassVar[type[Any]] = Settings
    _usual_resolution_w = 1.0
    _poll = QUESTION

    def _reading(self, answer: Answer) -> Reading:
        if answer.label != "ok":
            raise AnswerError("no-data", f"ipmitool failed: {answer.label}")
        power = _POWER.search(answer.body)
        if power is None:
            raise AnswerError("no-data", f"{answer.body[:40]!r} is no power reading")
        if not _ACTIVE.search(answer.body):
            raise AnswerError("configuration", "power reading is not activated on the controller")
        return Reading((number(power[1].decode(), "power"),))
