"""Times of day, also when clocks are set forward or back."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from controller.session.ending import next_time

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> float:
    """Convert a time in UTC to seconds of the epoch."""
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


@pytest.mark.parametrize(
    ("moment", "clock", "next_moment"),
    [
        ("2026-07-01T20:00", "07:00", "2026-07-02T05:00"),
        ("2026-07-01T04:59:59", "07:00", "2026-07-01T05:00"),
        ("2026-07-01T05:00", "07:00", "2026-07-02T05:00"),
        ("2026-03-28T22:00", "07:00", "2026-03-29T05:00"),  # a short night
        ("2026-03-29T00:30", "02:30", "2026-03-29T01:00"),  # skipped: 02:00 is 03:00
        ("2026-10-24T22:00", "07:00", "2026-10-25T06:00"),  # a long night
        ("2026-10-24T23:00", "02:30", "2026-10-25T00:30"),  # shown twice
        ("2026-10-25T00:30", "02:30", "2026-10-25T01:30"),
        ("2026-12-31T22:30", "00:00", "2026-12-31T23:00"),
    ],
)
def test_next_time_of_day_across_clock_changes(moment: str, clock: str, next_moment: str) -> None:
    of_day = datetime.strptime(clock, "%H:%M")
    assert next_time(at(moment), of_day, BERLIN) == at(next_moment)
