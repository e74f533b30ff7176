"""Driver of a machine's management controller (BMC): DCMI's power reading by IPMI and ipmitool.

The text is that of ipmitool 1.8 (lib/ipmi_dcmi.c, `ipmi_dcmi_pwr_rd`), in whole watts. What it
calls instantaneous is a mean: controllers do not state of which time, reports name up to 30 s. An
answer that is the same to the letter, with its time stamp, is the same reading. Untried on a real
controller.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

from contract import system_text
from instrumentation.meters.answers import Answer, envelope
from instrumentation.meters.networked import (
    ONLY_CHANNEL,
    AnswerError,
    Networked,
    NetworkSettings,
    Period,
    Reading,
    number,
)
from instrumentation.network import one_line
from instrumentation.ports import PortError
from instrumentation.transports import QueryTransport

QUESTION = b"dcmi power reading\n"
_POWER = re.compile(rb"Instantaneous power reading:\s+(\d+) Watts")
_STATE = re.compile(rb"Power reading state is:\s+(\w+)")
_STAMP = re.compile(rb"IPMI timestamp:\s+(.*)")
_USUAL_PORT = 623


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
    _usual_averaged_s = 30.0
    _poll = QUESTION

    def connect(self, address: str, secret: str, limit_s: float) -> IpmiTransport:
        url = urlsplit(address)
        port = url.port or _USUAL_PORT
        return IpmiTransport(url.hostname or "", port, secret=secret, limit_s=limit_s)

    def _reading(self, answer: Answer) -> Reading:
        if answer.label != "ok":
            raise AnswerError("no-data", f"ipmitool failed: {answer.label}")
        power, state = _POWER.search(answer.body), _STATE.search(answer.body)
        if power is None:
            raise AnswerError("no-data", f"{answer.body[:40]!r} is no power reading")
        if state is None or state[1] != b"activated":
            shown, remedy = (
                state[1].decode() if state else "unknown",
                "ipmitool dcmi power activate",
            )
            reason = f"the controller's power reading is {shown}: run `{remedy}`"
            raise AnswerError("configuration", reason)
        stamp = _STAMP.search(answer.body)
        # A controller without a clock shows the same time for ever.
        is_clocked = stamp is not None and b"1970" not in stamp[1]
        name = answer.body.decode("ascii", "replace") if is_clocked else ""
        return Reading((number(power[1].decode(), "power"),), stamp=name)


class IpmiTransport(QueryTransport):
    """Commands of ipmitool by IPMI 2.0 (`lanplus`); `secret` is `user:password`.

    The password is passed in the program's environment, not on its command line.
    """

    _answers_all = True

    def __init__(self, host: str, port: int, *, secret: str, limit_s: float) -> None:
        super().__init__()
        if shutil.which("ipmitool") is None:
            raise PortError(errno.ENOPKG, "the program ipmitool is missing: install its package")
        user, _, password = secret.partition(":")
        self._argv = ["ipmitool", "-I", "lanplus", "-H", host, "-p", str(port), "-U", user, "-E"]
        self._environment = {**os.environ, "LC_ALL": "C", "IPMITOOL_PASSWORD": password}
        self._limit_s = limit_s

    def _put(self, message: bytes) -> None:
        self._message = message.decode("ascii").split()

    def _get(self) -> bytes:
        try:
            process = subprocess.run(
                [*self._argv, *self._message],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        if process.returncode:
            return envelope(one_line(system_text.decode(process.stderr)), b"")
        return envelope("ok", process.stdout)

    def close(self) -> None:
        """Do nothing: no connection stays open between two questions."""
