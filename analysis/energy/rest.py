"""Edges of a run's phases on the controller's clock, and where the machine rests beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from analysis.energy.curve import Edge
from analysis.suite.align import TargetClock
from analysis.suite.records import TAIL, Run

# A rest ends at the phase's start or begins at its end but for so much: the counters are read.
SLACK_NS = 10_000_000


def run_edges(run: Run, plan: Mapping[str, Any], clock: TargetClock) -> dict[int, Edge]:
    """By the target's time of each edge; edges that no clock reading places are left out."""
    rests = _rests(run, _seconds_ns(plan, "settle_s"), _seconds_ns(plan, "pad_s"))
    edges = {}
    for t_ns in sorted({t for phase in run.phases for t in (phase.t_start_ns, phase.t_end_ns)}):
        placed = clock.to_controller_ns(run.boot_id, t_ns)
        if placed is None:
            continue
        side, rest_ns = rests.get(t_ns, (None, 0))
        bound_ns = clock.bound_ns(run.boot_id, t_ns) or 0
        edges[t_ns] = Edge(placed, side, rest_ns, bound_ns)
    return edges


Side = Literal["before", "after"]


def _rests(run: Run, settle_ns: int, pad_ns: int) -> dict[int, tuple[Side | None, int]]:
    """Side and length of the rest beside an edge.

    Before the first phase the machine has settled and was padded; with padding it rests after each
    phase, and before each that begins as soon as such a rest is over. The tail itself is no rest.
    """
    rests: dict[int, tuple[Side | None, int]] = {}
    first = run.phases[0]
    if 0 <= first.t_start_ns - run.t_start_ns - pad_ns <= SLACK_NS and settle_ns + pad_ns > 0:
        rests[first.t_start_ns] = ("before", settle_ns + pad_ns)
    for phase, then in zip(run.phases, (*run.phases[1:], None), strict=True):
        if not pad_ns or phase.name == TAIL:
            continue
        pause_ns = pad_ns if then is None else then.t_start_ns - phase.t_end_ns
        if pause_ns < pad_ns:
            continue
        rests[phase.t_end_ns] = ("after", pad_ns)
        if then is not None and pause_ns >= pad_ns and _ends_in_rest(pause_ns, pad_ns):
            rests[then.t_start_ns] = ("before", pad_ns)
    return rests


def _ends_in_rest(pause_ns: int, pad_ns: int) -> bool:
    """One padding and nothing else, or something in between and then a padding of its own."""
    return pause_ns <= pad_ns + SLACK_NS or pause_ns >= 2 * pad_ns


def _seconds_ns(plan: Mapping[str, Any], key: str) -> int:
    value = plan.get(key)
    return round(value * 1e9) if isinstance(value, int | float) and value > 0 else 0
