from __future__ import annotations

from typing import Any

import pytest

from analysis.stats.decomposition import decompose, idle_share, tail
from analysis.stats.stats import estimate
from analysis.tests.known import known
from validation.synthetic.tables import energy_of


def row(name: str, block: int, joules: float | None, seconds: float, **more: Any) -> dict[str, Any]:
    what = {"workload": "write", "configuration": name, "block": block}
    return {**what, "energy_j": joules, "duration_s": seconds, **more}


def test_the_parts_are_exactly_the_whole_in_every_block() -> None:
    energy = energy_of(
        [
            row("plain", 0, 100.0, 10.0),
            row("soft", 0, 150.0, 12.0),
            row("plain", 1, 104.0, 10.5),
            row("soft", 1, 149.0, 12.1),
            row("plain", 2, 99.0, 9.8),  # no partner
        ]
    )
    found = known(decompose(energy, "write", "plain", "soft", "system"))
    assert found.n == 2
    assert found.delta_j == estimate([50.0, 45.0])
    assert found.by_time_j.mean + found.by_power_j.mean == pytest.approx(47.5, rel=1e-12)
    # Block 0: mean power (10 + 12.5)/2 for 2 s more, mean time 11 s for 2.5 W more.
    time_1 = (104 / 10.5 + 149 / 12.1) / 2 * 1.6
    power_1 = (10.5 + 12.1) / 2 * (149 / 12.1 - 104 / 10.5)
    assert found.by_time_j.mean == pytest.approx((22.5 + time_1) / 2)
    assert found.by_time_j.high == pytest.approx(estimate([22.5, time_1]).high)
    assert found.by_power_j.mean == pytest.approx((27.5 + power_1) / 2)
    assert found.delta_s.mean == pytest.approx(1.8)


def test_turned_round_all_signs_turn() -> None:
    energy = energy_of([row("a", 0, 100.0, 10.0), row("b", 0, 150.0, 12.0)])
    there = decompose(energy, "write", "a", "b", "system")
    back = decompose(energy, "write", "b", "a", "system")
    assert there is not None
    assert back is not None
    assert there.by_time_j.mean == -back.by_time_j.mean
    assert there.by_power_j.mean == -back.by_power_j.mean
    assert there.by_time_j.low is None  # one block


def test_a_phase_and_a_component_by_themselves() -> None:
    energy = energy_of(
        [
            row("a", 0, 100.0, 10.0),
            row("b", 0, 150.0, 10.0),
            row("a", 0, 10.0, 1.0, phase="read"),
            row("b", 0, 40.0, 4.0, phase="read"),
            row("a", 0, 7.0, 1.0, phase="read", component="drive"),
        ]
    )
    whole = decompose(energy, "write", "a", "b", "system")
    part = decompose(energy, "write", "a", "b", "system", phase="read")
    assert whole is not None
    assert part is not None
    assert (whole.by_time_j.mean, whole.by_power_j.mean) == (0.0, 50.0)
    assert (part.by_time_j.mean, part.by_power_j.mean) == (30.0, 0.0)
    assert decompose(energy, "write", "a", "b", "drive", phase="read") is None


def test_what_has_no_figure_is_in_no_block() -> None:
    energy = energy_of(
        [row("a", 0, None, 10.0), row("b", 0, 150.0, 12.0), row("a", 1, 100.0, 0.001)]
    )
    assert decompose(energy, "write", "a", "b", "system") is None
    assert decompose(energy.clear(), "write", "a", "b", "system") is None


def test_tail_and_idle_share_stand_on_the_rest_of_the_same_block() -> None:
    energy = energy_of(
        [
            row("a", 0, 100.0, 10.0),
            row("a", 0, 14.0, 2.0, phase="tail"),
            row("a", 0, 40.0, 8.0, workload="idle"),  # 5 W
            row("a", 1, 90.0, 9.0),
            row("a", 1, 15.0, 2.0, phase="tail"),
            row("a", 1, 48.0, 8.0, workload="idle"),  # 6 W
            row("a", 2, 90.0, 9.0),
        ]
    )
    assert tail(energy, "write", "a", "system") == estimate([4.0, 3.0])
    share = known(idle_share(energy, "write", "a", "system"))
    assert share.share == estimate([0.5, 0.6])
    assert share.above_j == estimate([50.0, 36.0])
    assert tail(energy, "write", "b", "system") is None
    assert idle_share(energy, "write", "a", "drive") is None


def test_without_idling_there_is_no_rest() -> None:
    energy = energy_of([row("a", 0, 100.0, 10.0), row("a", 0, 14.0, 2.0, phase="tail")])
    assert tail(energy, "write", "a", "system") is None
    assert idle_share(energy, "write", "a", "system") is None
