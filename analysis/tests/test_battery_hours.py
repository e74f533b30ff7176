"""Hours on a battery at a declared hour of work, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import stats

from analysis.library import Suite
from analysis.money.battery_hours import BatteryHours, battery_hours
from analysis.report.money_section import money_section
from analysis.report.view import Table
from analysis.stats.results import Results
from analysis.suite.clocks import TargetClock
from analysis.tests.known import known
from analysis.tests.pages import pieces, text_of
from validation.synthetic.suite import ASSUMPTIONS as PRICES
from validation.synthetic.tables import energy_of, suite_of

ASSUMPTIONS = PRICES | {"battery_hour": {"video_min": 10, "read_gib": 2, "written_gib": 0}}
REST_W, PLAY_W = 10.0, 15.0
READ_J = {"plain": (30.0, 31.0, 32.0), "soft": (60.0, 63.0, 63.0)}  # of 1 GiB, in 6 s


def phases(name: str, block: int, read_s: float = 6.0) -> list[dict[str, Any]]:
    """Return what a block has of a configuration."""
    same = {"block": block, "configuration": name}
    rest = {"workload": "idle", "phase": "idle", "energy_j": REST_W * 60, "idle_s": 60.0}
    play = {"workload": "video", "phase": "play", "energy_j": PLAY_W * 30, "video_s": 30.0}
    read = {"workload": "file_io", "phase": "read-large", "energy_j": READ_J[name][block]}
    return [
        {**same, **rest, "duration_s": 60.0},
        {**same, **play, "duration_s": 30.0},
        {**same, **read, "bytes": 2.0**30, "duration_s": read_s},
    ]


def derive(rows: list[dict[str, Any]], **changes: Any) -> Results:
    suite = suite_of(
        {"plain": "plain", "soft": "dmcrypt"},
        ["idle", "video", "file_io"],
        assumptions={**ASSUMPTIONS, **changes},
    )
    return Results(suite, TargetClock({}), energy_of(rows), ())


def hours_of(rows: list[dict[str, Any]], **changes: Any) -> list[BatteryHours]:
    derived = derive(rows, **changes)
    return battery_hours(derived.suite, derived.energy)


ROWS = [row for block in range(3) for name in READ_J for row in phases(name, block)]


def hour_j(name: str) -> list[float]:
    """Return by hand: 10 min played, 2 GiB read in 12 s, and the rest of the hour idle."""
    return [600 * PLAY_W + 2 * read_j + (3600 - 600 - 12) * REST_W for read_j in READ_J[name]]


def test_hours_and_minutes_lost_are_those_by_hand() -> None:
    plain, soft = hours_of(ROWS)
    battery_j = float(str(PRICES["battery_wh"])) * 3600
    means = {name: sum(hour_j(name)) / 3 for name in READ_J}
    assert plain.hours.mid == pytest.approx(battery_j / means["plain"])
    assert soft.hours.mid == pytest.approx(battery_j / means["soft"])
    assert (plain.lost_min, plain.n) == (None, 3)
    assert plain.idle_share == pytest.approx((3600 - 612) / 3600)
    logs = [math.log(b / a) for a, b in zip(hour_j("plain"), hour_j("soft"), strict=True)]
    low, high = stats.t.interval(0.95, 2, sum(logs) / 3, stats.sem(logs))
    lost = known(soft.lost_min)
    by_hand = [60 * plain.hours.mid * (1 - math.exp(-x)) for x in (sum(logs) / 3, low, high)]
    assert [lost.mid, lost.low, lost.high] == pytest.approx(by_hand, rel=1e-9)


def test_the_library_has_the_same_with_assumptions_of_its_own() -> None:
    table = Suite(derive(ROWS, battery_hour=None)).battery_hours(
        **{"battery_hour": {"read_gib": 1}}
    )
    plain, soft = hours_of(ROWS, battery_hour={"read_gib": 1})
    assert table["hours"].to_list() == [plain.hours.mid, soft.hours.mid]
    assert table["lost_min"].to_list() == [None, known(soft.lost_min).mid]
    assert table["lost_min_high"][1] == known(soft.lost_min).high


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        (ROWS, {"battery_hour": None}),
        (ROWS, {"battery_hour": {"transactions": 1}}),
        (ROWS, {"battery_hour": {"video_min": 60, "read_gib": 1}}),
        ([row for row in ROWS if row["workload"] != "idle"], {}),
        ([{**row, "component": "package-0"} for row in ROWS], {}),
    ],
)
def test_what_lacks_a_phase_or_takes_more_than_an_hour_has_none(
    rows: list[dict[str, Any]], changes: dict[str, Any]
) -> None:
    assert hours_of(rows, **changes) == []


@pytest.mark.parametrize("phase", ["query", "query-cold"])
def test_transactions_are_those_that_reach_the_disk_in_suites_old_and_new(phase: str) -> None:
    same = {"configuration": "plain", "workload": "sql", "transactions": 100.0, "duration_s": 5.0}
    rows = [row for row in ROWS if row["configuration"] == "plain"]
    for block in range(3):
        rows += [
            {**same, "block": block, "phase": phase, "energy_j": 200.0 + block},
            {**same, "block": block, "phase": "query-warm", "energy_j": 100.0},
        ]
    (plain,) = hours_of(rows, battery_hour={"transactions": 1000})
    hour_j = 10 * 201 + (3600 - 50) * REST_W
    assert plain.hours.mid == pytest.approx(
        float(str(PRICES["battery_wh"])) * 3600 / hour_j, rel=1e-3
    )


def test_the_section_has_a_row_a_configuration_and_says_what_an_hour_is() -> None:
    section = money_section(derive(ROWS))
    table = next(t for t in pieces(Table, section) if t.caption.startswith("Hours on a battery"))
    assert [row[0] for row in table.rows] == ["plain", "soft"]
    assert "10 min of video, 2 GiB read and 0 GiB written" in table.caption
    assert "No hours on a battery" in text_of(
        money_section(derive(ROWS, battery_hour={"transactions": 1}))
    )
