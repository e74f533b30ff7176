"""Times of day, also where clocks are put forward or back."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from contract.tests.refusal import refuses
from controller.session.evening import Window, next_time

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = Window("22:00", "07:00")


def at(text: str) -> float:
    """Return a moment given in UTC."""
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
def test_the_next_time_that_clocks_show(moment: str, clock: str, next_moment: str) -> None:
    assert next_time(at(moment), clock, BERLIN) == at(next_moment)


@pytest.mark.parametrize(
    ("moment", "end"),
    [
        ("2026-07-01T20:00", "2026-07-02T05:00"),
        ("2026-07-02T04:59", "2026-07-02T05:00"),
        ("2026-07-02T05:00", None),
        ("2026-07-01T19:59:59", None),
        ("2026-10-24T23:59", "2026-10-25T06:00"),
    ],
)
def test_a_window_is_open_until_its_end(moment: str, end: str | None) -> None:
    assert NIGHT.open_until(at(moment), BERLIN) == (None if end is None else at(end))


def test_a_window_without_a_begin_is_always_open() -> None:
    assert Window(None, "07:00").open_until(at("2026-07-01T12:00"), BERLIN) == at(
        "2026-07-02T05:00"
    )


def test_times_are_of_a_day() -> None:
    assert Window.from_options(None, None) is None
    assert Window.from_options("7:00", None) == Window(None, "7:00")
    assert Window.from_options(None, "22:00-07:00") == NIGHT
    for until, between in (
        ("24:00", None),
        ("7", None),
        ("22:00-07:00", None),
        (None, "22:00"),
        (None, "07:00-07:00"),
        (None, "22:00-late"),
    ):
        with refuses("invalid-time"):
            Window.from_options(until, between)
