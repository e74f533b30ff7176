"""Test which sources are refused by a whole recording."""

from __future__ import annotations

import pytest

from instrumentation.sources import coverage, standing
from instrumentation.sources.standing import (
    ABOVE_TOTAL,
    BELOW_PART,
    CONTRADICTED,
    DID_NOT_MOVE,
    IGNORES_LOAD,
    ONE_VALUE,
    STANDS_STILL,
    TOO_LITTLE,
    TOO_MUCH,
    Stretch,
    below_parts,
    longest_frozen_row,
    memory_remarks,
    object_to_counter,
    object_to_fall,
    object_to_gauge,
    object_to_power,
    object_to_sensor,
    object_to_total,
    object_to_twins,
    rise_remarks,
    sentences,
    standstill_code,
)


@pytest.mark.parametrize(
    ("joules", "seconds", "code"),
    [
        ([0, 0, 0, 0], 0.5, STANDS_STILL),  # psys of a virtual machine
        ([0, 0], 0.01, DID_NOT_MOVE),  # runs of `true`
        ([5, 0, 5, 0, 5, 0], 0.5, STANDS_STILL),  # frozen in every rest
        ([5] * 19 + [0], 0.5, ""),  # a single stall of twenty
        ([1] * 10 + [0] * 10, 0.1, STANDS_STILL),  # frozen from half on
        ([1, 0, 1, 0, 1], 0.05, ""),  # shorter than its steps
        ([5, 5, 5], 0.5, ""),
        ([0, None, None, None], 0.5, ""),  # failed reads have a reason of their own
        ([], 0.5, ""),
    ],
)
def test_a_counter_that_stands_still(joules: list[float | None], seconds: float, code: str) -> None:
    stretches = [Stretch(seconds, energy_j) for energy_j in joules]
    assert standstill_code(stretches, standing.patience_s("RAPL")) == code


def test_a_gauge_may_rest_for_longer_than_a_counter() -> None:
    stretches = [Stretch(30.0, 0.0)]
    assert standstill_code(stretches, standing.patience_s("battery")) == DID_NOT_MOVE
    assert standstill_code(stretches, standing.patience_s("nvml")) == STANDS_STILL


@pytest.mark.parametrize(
    ("power_w", "seconds", "busy_s", "refused"),
    [
        (0.0, 1.0, 0.0, True),
        (200.0, 60.0, 40.0, True),
        (200.0, 60.0, 0.1, False),  # a machine at rest
        (200.0, 2.0, 2.0, False),  # shorter than a sensor takes to follow
    ],
)
def test_a_sensor_of_one_value_is_refused_by_the_work(
    power_w: float, seconds: float, busy_s: float, refused: bool
) -> None:
    stretches = [Stretch(seconds, power_w * seconds)]
    objection = object_to_sensor("power_meter/power1", power_w, stretches, busy_s, 5.0)
    assert (objection.code if objection else None) == (ONE_VALUE if refused else None)


def test_a_sensor_that_froze_is_found() -> None:
    living = [Stretch(2.0, 40.0), Stretch(2.0, 80.0)] * 4
    stopped = [Stretch(2.0, 80.0 + 0.01 * (k % 2)) for k in range(8)]
    row = longest_frozen_row([*living, *stopped], 5.0)
    assert row is not None and row[0] >= 16.0
    assert longest_frozen_row(living * 2, 5.0) is None
    assert longest_frozen_row([*living * 20, *stopped[:4]], 5.0) is None  # a tenth of it and less


@pytest.mark.parametrize(
    ("total_j", "part_j", "refused"),
    [(4.0, 12.0, True), (13.0, 12.0, False), (11.9, 12.0, False), (0.0, 12.0, False)],
)
def test_a_total_below_its_part(total_j: float, part_j: float, refused: bool) -> None:
    total, part = ([Stretch(1.0, j)] * 10 for j in (total_j, part_j))
    objection = object_to_total("psys", "package-0", total, part, 0.2)
    assert (objection.code if objection else None) == (BELOW_PART if refused else None)


@pytest.mark.parametrize(
    ("category", "power_w", "code"),
    [
        ("machine", 0.06, TOO_LITTLE),  # in kW
        ("machine", 12.0, None),
        ("machine", -60.0, TOO_LITTLE),
        ("machine", 65_535.0, TOO_MUCH),
        ("machine", None, None),
        ("processor", 0.025, TOO_LITTLE),
        ("processor", 0.2, None),
        ("accelerator", 0.016, TOO_LITTLE),  # in mW
        ("accelerator", 5.0, None),
        ("accelerator", 26_000.0, TOO_MUCH),
        ("memory", 0.001, TOO_LITTLE),
        ("memory", 200.0, None),
        ("memory", 2000.0, TOO_MUCH),
        ("drive", 0.0004, TOO_LITTLE),
        ("drive", 0.004, None),
        ("drive", 800.0, TOO_MUCH),
        ("core", 0.0, None),
        ("core", -1.0, TOO_LITTLE),
    ],
)
def test_a_mean_power_outside_its_category_is_refused(
    category: str, power_w: float | None, code: str | None
) -> None:
    stretches = [Stretch(1.0, power_w)] * 2
    objection = object_to_power("it", coverage.table().categories[category], stretches)
    assert (objection.code if objection else None) == code


@pytest.mark.parametrize(
    ("powers_w", "remarks"),
    [
        ((190.0, 200.0, 243.0, 6.0), ["more than its package-0", "33 times as much as package-1"]),
        ((190.0, 20.0, 243.0, 25.0), []),
        ((19.0, 20.0, 24.0, 25.0), ["more than its package-0", "more than its package-1"]),
        ((190.0, 80.0, 243.0, 0.0), []),
        ((190.0, 80.0, 243.0, 2.0), ["40 times as much as package-1"]),
    ],
)
def test_memory_unlike_its_package_or_another_is_remarked(
    powers_w: tuple[float, ...], remarks: list[str]
) -> None:
    names = "package-0", "package-0/dram", "package-1", "package-1/dram"
    shown = list(
        memory_remarks({n: [Stretch(1.0, w)] for n, w in zip(names, powers_w, strict=True)})
    )
    assert len(shown) == len(remarks)
    assert all(part in sentence for part, sentence in zip(remarks, shown, strict=True))
    alone = {"package-0": [Stretch(1.0, 5.0)], "dram": [Stretch(1.0, 7.0)]}
    assert len(list(memory_remarks(alone))) == 1


@pytest.mark.parametrize(
    ("watts", "codes"),
    [
        # A sound controller, and packages in a wrong unit: which is wrong does not show.
        (
            {"system": 102.0, "cpu": 130.0, "cpu+memory": 140.0, "package-0": 65.0},
            {
                "system": BELOW_PART,
                **dict.fromkeys(("cpu", "cpu+memory", "package-0"), ABOVE_TOTAL),
            },
        ),
        # Only processor and memory together are more than the machine.
        (
            {"system": 102.0, "cpu": 90.0, "cpu+memory": 115.0},
            {"system": BELOW_PART, "cpu": ABOVE_TOTAL, "cpu+memory": ABOVE_TOTAL},
        ),
        ({"system": 12.0, "nvme0": 20.0}, {"system": BELOW_PART, "nvme0": ABOVE_TOTAL}),
        ({"system": 102.0, "nvme0": 120.0}, {"nvme0": TOO_MUCH}),
        # One source: a psys that its maker wired otherwise.
        ({"psys": 4.0, "cpu": 20.0}, {"psys": BELOW_PART}),
        # A total that is impossible contradicts nothing.
        ({"system": 0.1, "cpu": 20.0}, {"system": TOO_LITTLE}),
        ({"system": 102.0, "cpu": 80.0, "cpu+memory": 90.0}, {}),
    ],
)
def test_of_two_sources_that_contradict_each_other_none_has_joules(
    watts: dict[str, float], codes: dict[str, str]
) -> None:
    sources = {"system": "meter bmc", "nvme0": "nvme"}
    named = {name: (name, sources.get(name, "RAPL")) for name in watts}
    table = coverage.table()
    covers = {n: c for n in watts if (c := table.category(n, watts, named[n][1])) is not None}
    stretches = {name: [Stretch(1.0, power_w)] * 10 for name, power_w in watts.items()}
    objections = below_parts(named, covers, stretches, None)
    assert {name: objection.code for name, objection in objections.items()} == codes


@pytest.mark.parametrize(
    ("counter_w", "power_w", "seconds", "is_refused"),
    [
        (37.5, 65.4, 8, True),
        (65.4, 37.5, 8, True),
        (60.0, 65.0, 8, False),
        (60.0, 0.06, 8, True),
        (37.5, 65.4, 2, False),  # the power may be a second late
        (0.0, 65.4, 8, True),
    ],
)
def test_a_counter_and_a_power_of_one_card_that_differ_have_no_joules(
    counter_w: float, power_w: float, seconds: int, is_refused: bool
) -> None:
    twins = {
        name: [Stretch(1.0, w)] * seconds
        for name, w in (("gpu-0", counter_w), ("gpu-0/power", power_w))
    }
    objections = object_to_twins({name: name for name in twins}, twins)
    assert objections.keys() == (twins.keys() if is_refused else set())
    assert {objection.code for objection in objections.values()} <= {CONTRADICTED}


@pytest.mark.parametrize(
    ("power_j", "gauge_j", "held_share", "is_refused"),
    [
        (100.0, 100.0, 0.9, False),
        (100.0, 140.0, 0.9, True),  # the power stood still
        (100.0, 140.0, 0.1, False),
        (100.0, 360.0, 0.1, True),  # another unit
        (360.0, 100.0, 0.1, True),
    ],
)
def test_a_power_unlike_its_gauge_is_refused_with_it(
    power_j: float, gauge_j: float, held_share: float, is_refused: bool
) -> None:
    objections = object_to_gauge(("gauge", "power"), power_j, gauge_j, 3.0, held_share)
    assert [objection.label for objection in objections] == ["gauge", "power"] * is_refused


@pytest.mark.parametrize(
    ("run_w", "busy_s", "is_refused"),
    [
        (1.5, 20.0, True),  # kW above 1 kW
        (70.0, 20.0, True),
        (90.0, 20.0, False),
        (160.0, 20.0, False),
        (1.5, 2.0, False),  # hardly any work
    ],
)
def test_a_power_that_falls_while_the_processor_works_is_refused(
    run_w: float, busy_s: float, is_refused: bool
) -> None:
    stretches = [Stretch(10.0, 1000.0), Stretch(10.0, 10 * run_w)] * 2
    objection = object_to_fall("system", stretches, busy_s)
    assert (objection.code if objection else None) == (IGNORES_LOAD if is_refused else None)


@pytest.mark.parametrize(
    ("total_w", "part_w", "run_s", "is_refused"),
    [
        ((60.0, 170.0), (20.0, 110.0), 20, False),
        ((150.0, 150.0), (20.0, 110.0), 20, True),  # another machine's socket
        ((230.0, 124.0), (20.0, 120.0), 20, True),  # 380 W modulo 256
        ((44.0, 220.0), (30.0, 900.0), 6, True),
        ((90.0, 140.0), (40.0, 130.0), 20, True),  # one of two supplies
        ((60.0, 70.0), (20.0, 110.0), 3, False),  # twice as long as its delay
        ((150.0, 148.0), (20.0, 30.0), 20, False),  # a disk sleeps meanwhile
    ],
)
def test_a_total_that_rises_less_than_its_part_is_refused_with_it(
    total_w: tuple[float, float], part_w: tuple[float, float], run_s: int, is_refused: bool
) -> None:
    powers_w = {"system": total_w, "cpu": part_w}
    named = {"system": ("system", "meter plug"), "cpu": ("cpu", "RAPL")}
    table = coverage.table()
    covers = {n: c for n in named if (c := table.category(n, named, named[n][1])) is not None}
    stretches = {n: [Stretch(run_s, run_s * w) for w in ws * 3] for n, ws in powers_w.items()}
    objections = below_parts(named, covers, stretches, {"system": 1.5})
    assert objections.keys() == (named.keys() if is_refused else set())


@pytest.mark.parametrize(
    ("total_w", "count"),
    [((60.0, 170.0), 0), ((600.0, 1700.0), 1), ((60.0, 60.0), 0), ((60.0, 3000.0), 0)],
)
def test_a_machine_that_rises_far_more_than_its_processor_is_remarked(
    total_w: tuple[float, float], count: int
) -> None:
    powers_w = {"system": total_w, "cpu": (20.0, 110.0)}
    stretches = {n: [Stretch(9.0, 9 * w) for w in ws * 2] for n, ws in powers_w.items()}
    assert len(list(rise_remarks({n: n for n in powers_w}, stretches, "system"))) == count


def test_a_late_total_is_not_below_its_part() -> None:
    total, part = [Stretch(0.1, 0.5)], [Stretch(0.1, 2.0)]
    assert object_to_total("psys", "package-0", total, part, 0.2) is None


def test_a_slow_total_that_is_always_less_is_below_its_part() -> None:
    part = [Stretch(0.6, 60.0)] * 6
    assert object_to_total("m", "cpu", [Stretch(0.6, 30.0)] * 6, part, 5.0) is not None
    late = [Stretch(0.6, 70.0), *[Stretch(0.6, 30.0)] * 5]
    assert object_to_total("m", "cpu", late, part, 5.0) is None


def test_equal_objections_share_a_sentence() -> None:
    stretches = [Stretch(2.0, 0.0)]
    objections = [object_to_counter(label, stretches, 0.5) for label in ("core", "dram")]
    (text,) = sentences(objection for objection in objections if objection)
    assert text.startswith("core, dram have no joules: ")
