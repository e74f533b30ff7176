from __future__ import annotations

import math

import pytest

from analysis.energy.curve import Edge
from analysis.energy.energy import run_edges
from analysis.suite.clocks import TargetClock
from analysis.suite.records import Phase, Run
from analysis.tests.known import plan_of, run_of
from contract import schema
from contract.plan import SuitePlan
from instrumentation.clock import ClockReading

S = 1_000_000_000
CLOCK = TargetClock.fit(
    [ClockReading(t_send_ns=0, t_target_ns=500, t_receive_ns=1_000, boot_id="boot")]
)


def run(*phases: tuple[str, float, float], start_s: float) -> Run:
    return run_of(
        t_start_ns=round(start_s * S),
        t_end_ns=round(phases[-1][2] * S),
        phases=tuple(Phase(n, round(a * S), round(b * S), (), {}) for n, a, b in phases),
    )


def sides(made: Run, plan: dict[str, float]) -> dict[float, tuple[str | None, float]]:
    edges: dict[int, Edge] = run_edges(made, plan_of(**plan), CLOCK)
    return {t / S: (edge.rest, edge.rest_ns / S) for t, edge in edges.items()}


def test_before_the_first_phase_the_machine_has_settled() -> None:
    made = run(("load", 10.001, 12), ("query", 12.0001, 15), ("tail", 15.001, 17), start_s=10)
    assert sides(made, {"settle_s": 5}) == {
        10.001: ("before", 5),
        12: (None, 0),
        12.0001: (None, 0),
        15: (None, 0),
        15.001: (None, 0),
        17: (None, 0),
    }


def test_what_a_workload_does_before_its_first_phase_is_no_rest() -> None:
    made = run(("load", 10.5, 12), ("tail", 12.0001, 13), start_s=10)
    assert set(sides(made, {"settle_s": 5}).values()) == {(None, 0)}
    early = run(("load", 10.5, 12), ("tail", 12.0001, 13), start_s=10)
    assert sides(early, {"settle_s": 5, "pad_s": 3})[10.5] == (None, 0)


def test_padding_is_rest_after_each_phase_and_before_each_that_follows_it() -> None:
    """From 20 to 24 s something lies between two paddings; before the tail there is one."""
    made = run(
        ("a", 13.001, 15), ("b", 18.002, 20), ("c", 27.0, 29), ("tail", 32.001, 34), start_s=10
    )
    assert sides(made, {"settle_s": 5, "pad_s": 3}) == {
        13.001: ("before", 8),
        15: ("after", 3),
        18.002: ("before", 3),
        20: ("after", 3),
        27: ("before", 3),
        29: ("after", 3),
        32.001: ("before", 3),
        34: (None, 0),
    }


def test_a_phase_that_begins_long_after_the_padding_has_no_rest_before_it() -> None:
    made = run(("a", 13, 15), ("b", 20, 22), ("tail", 25, 26), start_s=10)
    assert sides(made, {"pad_s": 3})[20] == (None, 0)


def test_the_clocks_bound_goes_with_each_edge_and_an_unknown_boot_has_none() -> None:
    made = run(("a", 13, 15), start_s=10)
    assert all(edge.bound_ns > 0 for edge in run_edges(made, plan_of(), CLOCK).values())
    assert run_edges(made, plan_of(), TargetClock({})) == {}


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 1e300, 10**400, -1, "5", None])
@pytest.mark.parametrize("key", ["settle_s", "pad_s"])
def test_a_rest_of_no_possible_length_is_refused(key: str, seconds: object) -> None:
    names = {"format": "fde-plan/3", "origin": "modelled", "sha256": ""}
    plan = {**names, **dict.fromkeys(("suite_id", "suite", "host"), "s"), key: seconds}
    with pytest.raises((ValueError, OverflowError)):
        schema.read(SuitePlan, plan)
