"""Times of day between which a session may measure, on this machine's own clock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, tzinfo

from contract.errors import ControllerError

MINUTE_S = 60


@dataclass(frozen=True)
class Window:
    """From `begin` to `end`, hours and minutes of the wall clock; without `begin` from now on."""

    begin: str | None
    end: str

    @classmethod
    def from_options(cls, until: str | None, between: str | None) -> Window | None:
        """Return the window of `--until 07:00` or `--between 22:00-07:00`; None without either.

        Raises ControllerError for what is no time of day.
        """
        text = between or until
        if text is None:
            return None
        times = re.fullmatch(r"(?:([^-]+)-)?([^-]+)", text)
        begin, end = times.groups() if times else (None, "")
        valid = all(re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", each) for each in (begin or end, end))
        if not valid or (between is not None) != (begin is not None) or begin == end:
            raise ControllerError("invalid-time", text=text)
        return cls(begin, end)

    def open_until(self, now_s: float, zone: tzinfo | None = None) -> float | None:
        """Return the end, in seconds of the Unix epoch, of the window that is open now.

        None where it is closed. `zone` is the local one by default.
        """
        end_s = next_time(now_s, self.end, zone)
        if self.begin is not None and next_time(now_s, self.begin, zone) < end_s:
            return None
        return end_s


def next_time(now_s: float, clock: str, zone: tzinfo | None = None) -> float:
    """Return the next moment at which clocks show a time of day, or skip it in spring.

    In autumn a time that they show twice comes twice. Both are seconds of the Unix epoch.
    """
    moment = now_s // MINUTE_S * MINUTE_S
    before = _shown(moment, zone)
    while True:
        moment += MINUTE_S
        shown = _shown(moment, zone)
        hour, minute = map(int, clock.split(":"))
        if before < shown.replace(hour=hour, minute=minute) <= shown:
            return moment
        before = shown


def _shown(moment_s: float, zone: tzinfo | None) -> datetime:
    """Return what clocks show, without their zone."""
    return datetime.fromtimestamp(moment_s, zone).replace(tzinfo=None)
