"""Paybacks, profiles and batteries of suites."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.library import Suite
from analysis.money import costs
from analysis.money.costs import BatteryHours, battery_hours
from analysis.money.payback import PROFILE, repaid_after_years
from analysis.report import payback_text, words
from analysis.report.money_section import money_section
from analysis.report.texts import say
from analysis.report.view import Table
from analysis.stats.results import Results
from analysis.stats.stats import estimate
from analysis.suite.clocks import TargetClock
from analysis.tests.known import analysed, known, replanned
from analysis.tests.pages import UNWANTED, pieces, text_of
from contract.assumptions import Assumptions, parse_assumptions
from contract.estimates import Estimate
from instrumentation.accuracy import ErrorTerm, read_terms
from validation.synthetic.suite import ASSUMPTIONS
from validation.synthetic.suite import ASSUMPTIONS as PRICES
from validation.synthetic.tables import energy_of, suite_of

AES128 = "dmcrypt-aes128"
DUTY = {"kernel_tree": 2, "file_io": 3}


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Three blocks of two workloads that count their bytes, and of idling."""
    folder = tmp_path_factory.mktemp("money") / "suite"
    loads = ("file_io", "kernel_tree", "idle")
    return analysed(folder, blocks=3, interval_ms=100, workloads=loads)


def assuming(derived: Results, **changes: Any) -> Results:
    """Return the same suite with other assumptions; a value of `...` takes one away."""
    all_assumptions = {**ASSUMPTIONS, **changes}
    assumed = {key: value for key, value in all_assumptions.items() if value is not ...}
    try:
        assumptions = parse_assumptions(assumed)
    except ValueError:
        assumptions = None
    return replace(derived, suite=replace(derived.suite, assumptions=assumptions))


def joules(derived: Results, workload: str, configuration: str, block: int) -> float:
    """With the delayed writes of the tail."""
    rows = derived.energy.filter(
        pl.col("phase").is_in(["all", "tail"]),
        workload=workload,
        configuration=configuration,
        block=block,
        component="system",
    )
    assert len(rows) == 2
    return float(rows["energy_j"].sum())


def test_paybacks_are_of_every_working_workload_against_every_software(derived: Results) -> None:
    paybacks = costs.paybacks(derived.suite, derived.energy)
    assert [(p.workload, p.against) for p in paybacks] == [
        ("file_io", AES128),
        ("file_io", "dmcrypt-aes256"),
        ("kernel_tree", AES128),
        ("kernel_tree", "dmcrypt-aes256"),
    ]
    first = paybacks[0]
    savings = [
        joules(derived, "file_io", AES128, b) - joules(derived, "file_io", "opal", b)
        for b in range(3)
    ]
    assert first.saving_j.mean == pytest.approx(estimate(savings).mean)
    scatter = first.budget.rows[0]
    assert scatter.half_width == pytest.approx(estimate(savings).half_width)
    assert first.runs_per_day == ASSUMPTIONS["runs_per_day"]
    assert first.origin == "modelled"
    without = derived.energy.filter(pl.col("phase") != "tail")
    alone = costs.paybacks(derived.suite, without)[0]
    tails = derived.energy.filter(phase="tail", component="system", workload=first.workload)
    means = dict(tails.group_by("configuration").agg(pl.col("energy_j").mean()).iter_rows())
    tail_j = means[first.against] - means[first.drive]
    assert tail_j != 0
    assert alone.saving_j.mean == pytest.approx(first.saving_j.mean - tail_j)


def test_the_meters_limits_apply_to_the_saving(derived: Results) -> None:
    """3 % of the reading is 3 % of the saving, and 0.5 mW of the seconds saved: 95 % of a width."""
    for p in costs.paybacks(derived.suite, derived.energy):
        by_meter = replace(p.budget, rows=p.budget.rows[1:])
        assert known(by_meter.expanded) / p.saving_j.mean == pytest.approx(0.95 * 0.03, rel=1e-3)
    (meter,) = derived.suite.meters
    unknown = replace(derived.suite, meters=(replace(meter, terms=read_terms({})),))
    rows = costs.paybacks(unknown, derived.energy)[0].budget.rows[1:]
    assert all(row.half_width is None for row in rows)


def test_the_profile_is_summed_within_each_block(derived: Results) -> None:
    assumed = assuming(derived, duty=DUTY)
    (first, second) = costs.profiles(assumed.suite, assumed.energy)
    assert (first.workload, first.against, first.runs_per_day) == (PROFILE, AES128, 1.0)
    assert second.against == "dmcrypt-aes256"
    days = [
        sum(
            count * (joules(derived, w, AES128, b) - joules(derived, w, "opal", b))
            for w, count in DUTY.items()
        )
        for b in range(3)
    ]
    expected = estimate(days)
    assert first.saving_j.mean == pytest.approx(expected.mean)
    assert first.budget.rows[0].half_width == pytest.approx(expected.half_width)
    assert first.kwh_per_year.mean == pytest.approx(expected.mean * 365.25 / 3.6e6)


def test_a_block_that_lacks_a_workload_does_not_count(derived: Results) -> None:
    assumed = assuming(derived, duty=DUTY)
    lost = (
        (pl.col("block") == 1)
        & (pl.col("workload") == "file_io")
        & (pl.col("configuration") == "opal")
    )
    profiles = costs.profiles(assumed.suite, assumed.energy.filter(~lost))
    assert [p.saving_j.n for p in profiles] == [2, 2]
    by_workload = costs.paybacks(assumed.suite, assumed.energy.filter(~lost))
    assert [p.saving_j.n for p in by_workload] == [2, 2, 3, 3]


def test_a_profile_of_one_workload_is_that_workload(derived: Results) -> None:
    assumed = assuming(derived, duty={"file_io": 7})
    first, _ = costs.profiles(assumed.suite, assumed.energy)
    alone = next(
        p for p in costs.paybacks(assumed.suite, assumed.energy) if p.workload == "file_io"
    )
    assert first.runs_per_day == 7
    assert first.saving_j == alone.saving_j
    assert first.saving_per_year.mean == pytest.approx(
        alone.saving_per_year.mean * 7 / alone.runs_per_day
    )


def test_a_profile_with_a_missing_workload_is_reported(derived: Results) -> None:
    assumed = assuming(derived, duty={"sql": 1, "kernel_tree": 1})
    assert costs.profiles(assumed.suite, assumed.energy) == []
    assert "“SQL”, which this suite did not run" in payback_text.profile_lacking(assumed)
    assert "“SQL”" in text_of(money_section(assumed))
    assert payback_text.money_line(assumed).facts["workload"] == "kernel_tree"


def test_without_a_declared_duty_there_is_no_profile(tmp_path: Path) -> None:
    derived = analysed(tmp_path / "s", blocks=2, interval_ms=100, workloads=("file_io",))
    assert costs.profiles(derived.suite, derived.energy) == []
    assert payback_text.profile_lacking(derived) == ""
    text = text_of(money_section(derived))
    assert payback_text.money_line(derived).facts["workload"] == "file_io"
    assert "duty" not in text
    once = assuming(derived, duty={"file_io": 7})
    assert "7 runs of “File write and read” a day" in text_of(money_section(once))


def test_interest_above_the_saving_never_repays() -> None:
    a = Assumptions(25.0, "USD", 0.12, 50.0, 4.0, 24.0, discount_rate=0.03)
    assert repaid_after_years(Estimate(0.7, 0.6, 0.8), a) is None
    repaid = known(repaid_after_years(Estimate(0.8, 0.7, 0.9), a))
    assert repaid.high is None
    assert known(repaid.low) < repaid.mean
    assert repaid_after_years(Estimate(-1.0, None, None), a) is None


def test_the_section_has_every_table(derived: Results) -> None:
    section = money_section(assuming(derived, duty=DUTY, grid_g_co2_per_kwh=400))
    captions = [table.caption for table in pieces(Table, section)]
    assert len(captions) == 2
    assert not UNWANTED.search(text_of(section))
    (shown, *_) = pieces(Table, section)
    assert [len(row) for row in shown.rows] == [3] * 4 and "CO₂" in shown.rows[2][0]
    fleet = assuming(derived, machines=500)
    (shown, *_) = pieces(Table, money_section(fleet))
    assert "500 machines" in shown.rows[2][0]
    for saving, cell in zip(
        costs.savings(fleet.suite, fleet.energy), shown.rows[2][1:], strict=True
    ):
        assert saving.fleet_per_year == saving.per_year.scaled(500)
        assert cell.startswith(words.rounded(saving.fleet_per_year.mean))


def test_more_work_than_a_day_has_no_profile(derived: Results) -> None:
    assumed = assuming(derived, duty=DUTY)
    assert "one machine can do in a day" not in text_of(money_section(assumed))
    whole_day = assuming(derived, duty={"file_io": 1e5})
    assert costs.profiles(whole_day.suite, whole_day.energy) == []
    assert "one machine can do in a day" in text_of(money_section(whole_day))


def test_every_figure_of_one_block_is_without_interval(tmp_path: Path) -> None:
    section = money_section(
        analysed(tmp_path / "s", blocks=1, interval_ms=100, workloads=("kernel_tree",))
    )
    cells = [cell for t in pieces(Table, section) for row in t.rows for cell in row[t.words :]]
    shown = [cell for cell in cells if cell not in ("–", "0 %", "1")]
    bare = [cell for cell in shown if "no interval: too few blocks" not in cell]
    assert len(shown) > 10
    assert all(cell.replace(".", "").isdigit() for cell in bare), bare


def test_savings_have_a_column_for_each_software() -> None:
    kinds = {"plain": "plain", "opal": "opal", **{f"soft{i}": "dmcrypt" for i in range(7)}}
    loads = ("kernel_tree", "file_io", "kernel_grep", "sql", "video")
    suite = suite_of(kinds, loads, assumptions=ASSUMPTIONS)
    rows = [
        {
            "block": block,
            "configuration": name,
            "workload": load,
            "energy_j": 100.0 + 20 * (kind == "dmcrypt") + block,
        }
        for block in range(3)
        for name, kind in kinds.items()
        for load in loads
    ]
    energy = energy_of(rows)
    section = money_section(Results(suite, TargetClock({}), energy, ()))
    (savings, *_) = pieces(Table, section)
    assert len(savings.headers) == 1 + 7 and len(savings.rows) == 3


def test_without_software_there_is_no_payback(tmp_path: Path) -> None:
    derived = analysed(
        tmp_path / "s", blocks=2, workloads=("kernel_tree",), configurations=("plain", "opal")
    )
    assert costs.paybacks(derived.suite, derived.energy) == []
    line = payback_text.money_line(derived)
    assert line.code == "unknown"
    assert "Declared before the first run" in text_of(money_section(derived))


SOFT_J, PLAIN_J = (120.0, 121.0, 122.0, 119.0), (100.0, 101.0, 99.0, 100.0)


def without_drive(soft_j: Sequence[float] = SOFT_J, component: str = "system") -> Results:
    """Return a suite of a disk with and without dm-crypt: a run each in four blocks."""
    suite = suite_of({"plain": "plain", "soft": "dmcrypt"}, ["file_io"], assumptions=PRICES)
    rows = [
        {"block": block, "configuration": name, "workload": "file_io", "energy_j": joules_}
        for name, values in (("plain", PLAIN_J), ("soft", soft_j))
        for block, joules_ in enumerate(values)
    ]
    source = "meter" if component == "system" else "rapl"
    energy = energy_of([{**row, "component": component, "source": source} for row in rows])
    return Results(suite, TargetClock({}), energy, ())


def test_a_drive_that_was_not_measured_may_cost_what_no_encryption_saves() -> None:
    derived = without_drive()
    line = payback_text.money_line(derived)
    savings = [soft - plain for soft, plain in zip(SOFT_J, PLAIN_J, strict=True)]
    low, high = stats.t.interval(0.95, 3, np.mean(savings), stats.sem(savings))
    worth = 50 * 365.25 / 3.6e6 * 0.12 * (1 - 1.03**-5) / 0.03
    by_hand = [worth * joules_ for joules_ in (np.mean(savings), low, high)]
    assert line.code == "at-most"
    assert line.facts["at_most"] == pytest.approx(by_hand)
    assert (line.facts["drive"], line.facts["assumed"]) == ("plain", True)
    assert f"{by_hand[0]:.3f}" in line.verdict
    assert "No such drive was measured" in line.reason


@pytest.mark.parametrize(
    ("soft_j", "code"),
    [((101.0, 98.0, 103.0, 99.0), "unsettled"), ((90.0, 91.0, 89.0, 90.0), "does-not-pay")],
)
def test_a_drive_that_was_not_measured_and_saves_nothing(
    soft_j: Sequence[float], code: str
) -> None:
    assert payback_text.money_line(without_drive(soft_j)).code == code


def test_without_a_meter_the_price_is_of_the_processors_joules() -> None:
    line = payback_text.money_line(without_drive(component="package-0"))
    assert (line.code, line.facts["component"]) == ("at-most", "package-0")
    assert "Only the joules of the CPU package are counted" in line.reason


def test_hours_of_work_a_day_set_the_runs(derived: Results) -> None:
    """Six hours are all workloads in turn on the slowest configuration, or one of them alone."""
    assumed = assuming(derived, hours_per_day=6)
    suite, energy = assumed.suite, assumed.energy
    day = costs.day_of_work(suite, energy)
    assert set(day) == {"file_io", "kernel_tree"} and len(set(day.values())) == 1
    assert costs.hours_a_day(suite, energy, day) == pytest.approx(6)
    assert [p.workload for p in costs.profiles(suite, energy)] == [PROFILE] * 2
    for p in costs.paybacks(suite, energy):
        runs = {p.workload: p.runs_per_day}
        assert costs.hours_a_day(suite, energy, runs) == pytest.approx(6)
    assert "6 hours of all workloads in turn a day" in payback_text.money_line(assumed).reason
    of_duty = assuming(derived, hours_per_day=24, duty=DUTY).suite
    day = costs.day_of_work(of_duty, energy)
    assert day["file_io"] / day["kernel_tree"] == pytest.approx(3 / 2)
    assert len(costs.profiles(of_duty, energy)) == 2


def test_the_drive_is_compared_with_software_on_the_same_disk(derived: Results) -> None:
    stacks = tuple(
        replace(stack, disk="sed") if stack.name == AES128 else stack
        for stack in derived.suite.plan.configurations
    )
    suite = replanned(derived.suite, configurations=stacks)
    assert {p.against for p in costs.paybacks(suite, derived.energy)} == {AES128}
    assert {p.against for p in costs.profiles(suite, derived.energy)} == {AES128}
    words = say("money.drive.key")
    assert words in text_of(money_section(replace(derived, suite=suite)))
    assert words not in text_of(money_section(derived))


def test_software_that_needs_the_drive_is_not_an_alternative(derived: Results) -> None:
    stacks = tuple(
        replace(stack, disk="sed", encrypted_by="both") if stack.name == AES128 else stack
        for stack in derived.suite.plan.configurations
    )
    suite = replanned(derived.suite, configurations=stacks)
    assert {p.against for p in costs.paybacks(suite, derived.energy)} == {"dmcrypt-aes256"}
    assert {p.against for p in costs.profiles(suite, derived.energy)} == {"dmcrypt-aes256"}


def test_saved_time_is_worth_the_power_at_rest_or_nothing(derived: Results) -> None:
    """Asleep it takes nothing, at rest the power that the suite's own idling had."""
    sleeping = costs.paybacks(assuming(derived).suite, derived.energy)[0]
    idling = costs.paybacks(assuming(derived, after_work="idle").suite, derived.energy)[0]
    assert (sleeping.after_work, idling.after_work) == ("sleep", "idle")
    rows = derived.energy.filter(component="system", phase="all")
    of_rest = rows.filter(workload="idle", configuration=derived.suite.sed)
    rest_w = (of_rest["energy_j"] / of_rest["duration_s"]).to_list()
    of_work = rows.filter(workload=sleeping.workload)
    seconds = [
        of_work.filter(configuration=name).sort("block")["duration_s"].to_list()
        for name in (sleeping.against, derived.suite.sed)
    ]
    sooner_s = [a - b for a, b in zip(*seconds, strict=True)]
    expected = np.mean([w * s for w, s in zip(rest_w, sooner_s, strict=True)])
    assert sleeping.saving_j.mean - idling.saving_j.mean == pytest.approx(float(expected))


HOURLY = PRICES | {"battery_hour": {"video_min": 10, "read_gib": 2, "written_gib": 0}}
REST_W, PLAY_W = 10.0, 15.0
READ_J = {"plain": (30.0, 31.0, 32.0), "soft": (60.0, 63.0, 63.0)}  # of 1 GiB, in 6 s


def phases(name: str, block: int, read_s: float = 6.0) -> list[dict[str, Any]]:
    """Return what a block has of a configuration."""
    same = {"block": block, "configuration": name}
    idle = {"workload": "idle", "phase": "idle", "energy_j": REST_W * 60, "idle_s": 60.0}
    play = {"workload": "video", "phase": "play", "energy_j": PLAY_W * 30, "video_s": 30.0}
    read = {"workload": "file_io", "phase": "read-large", "energy_j": READ_J[name][block]}
    return [
        {**same, **idle, "duration_s": 60.0},
        {**same, **play, "duration_s": 30.0},
        {**same, **read, "bytes": 2.0**30, "duration_s": read_s},
    ]


def derive(rows: list[dict[str, Any]], **changes: Any) -> Results:
    suite = suite_of(
        {"plain": "plain", "soft": "dmcrypt"},
        ["idle", "video", "file_io"],
        assumptions={**HOURLY, **changes},
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
    assert plain.hours.mean == pytest.approx(battery_j / means["plain"])
    assert soft.hours.mean == pytest.approx(battery_j / means["soft"])
    assert (plain.lost_min, plain.n) == (None, 3)
    assert plain.idle_share == pytest.approx((3600 - 612) / 3600)
    logs = [math.log(b / a) for a, b in zip(hour_j("plain"), hour_j("soft"), strict=True)]
    low, high = stats.t.interval(0.95, 2, sum(logs) / 3, stats.sem(logs))
    lost = known(soft.lost_min)
    by_hand = [60 * plain.hours.mean * (1 - math.exp(-x)) for x in (sum(logs) / 3, low, high)]
    assert [lost.mean, lost.low, lost.high] == pytest.approx(by_hand, rel=1e-9)


def test_hours_hold_the_meters_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gain within 3 %, as a rectangle, is nearly the whole interval of blocks that agree."""
    steady = [{**row, "block": block} for block in range(3) for row in phases("plain", 0)]
    (without,) = hours_of(steady)
    gain = ErrorTerm("gain", 0.03, "the maker")
    monkeypatch.setattr(costs, "terms_of", lambda *_: (gain,))
    (held,) = hours_of(steady)
    assert known(without.hours.half_width) == pytest.approx(0, abs=1e-9)
    low, high = known(held.hours.low), known(held.hours.high)
    assert (high - low) / 2 / held.hours.mean == pytest.approx(0.95 * 0.03, rel=0.01)


def test_the_library_gives_hours_for_other_assumptions() -> None:
    table = Suite(derive(ROWS, battery_hour=None)).battery_hours(
        **{"battery_hour": {"read_gib": 1}}
    )
    plain, soft = hours_of(ROWS, battery_hour={"read_gib": 1})
    assert table["hours"].to_list() == [plain.hours.mean, soft.hours.mean]
    assert table["lost_min"].to_list() == [None, known(soft.lost_min).mean]
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
def test_missing_phases_or_too_much_work_give_no_hours(
    rows: list[dict[str, Any]], changes: dict[str, Any]
) -> None:
    assert hours_of(rows, **changes) == []


@pytest.mark.parametrize("phase", ["query", "query-cold"])
def test_transactions_are_those_of_the_cold_query(phase: str) -> None:
    same = {"configuration": "plain", "workload": "sql", "transactions": 100.0, "duration_s": 5.0}
    rows = [row for row in ROWS if row["configuration"] == "plain"]
    for block in range(3):
        rows += [
            {**same, "block": block, "phase": phase, "energy_j": 200.0 + block},
            {**same, "block": block, "phase": "query-warm", "energy_j": 100.0},
        ]
    (plain,) = hours_of(rows, battery_hour={"transactions": 1000})
    hour_j = 10 * 201 + (3600 - 50) * REST_W
    assert plain.hours.mean == pytest.approx(
        float(str(PRICES["battery_wh"])) * 3600 / hour_j, rel=1e-3
    )


def test_the_hours_table_has_a_row_a_configuration() -> None:
    section = money_section(derive(ROWS))
    table = next(t for t in pieces(Table, section) if t.caption.startswith("Hours on a battery"))
    assert [row[0] for row in table.rows] == ["plain", "soft"]
