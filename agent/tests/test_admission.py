"""Which run may begin: nights that are simulated, and what the controller sets."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from agent import cli
from agent.system import admission
from agent.system.admission import RESERVE, Bounds
from agent.tests.suite_lab import blocks_document
from contract import plan as plans
from contract.attempts import NS, History
from contract.files import write_json
from contract.journal import Entry

NIGHTS, NIGHT_S, LIMIT_S, SWITCH_S = 1000, 9 * 3600.0, 1800.0, 20.0
PLAN = replace(plans.parse(blocks_document(20)), run_limit_s=LIMIT_S)


def night(chance: random.Random, *, beyond: float = 0.0) -> tuple[list[float], float]:
    """Return the ends of a night's runs, in seconds, and how much of it they left unused.

    A run takes at most a quarter more than the longest of its workload so far, the first its
    limit, and switches differ by a quarter at most; of a share `beyond` this does not hold.
    """
    seq, history, now_s, longest = count(), History(), 0.0, dict[str, float]()

    def tell(state: str, run_id: str) -> None:
        history.add(Entry(next(seq), round(now_s * NS), "b", state, run_id))

    ends = []
    for run in PLAN.runs:
        if admission.needed_s(PLAN, history, run, {}) > NIGHT_S - now_s:
            break
        known_s = longest.get(run.workload)
        most_s = RESERVE * known_s if known_s else LIMIT_S
        took_s = chance.uniform(0.3, 1.0) * most_s * (3 if chance.random() < beyond else 1)
        tell("switching", run.run_id)
        now_s += chance.uniform(0.8, 1.0) * SWITCH_S
        tell("running", run.run_id)
        now_s += took_s
        tell("finished", run.run_id)
        longest[run.workload] = max(took_s, known_s or 0.0)
        ends.append(now_s)
    return ends, NIGHT_S - now_s


def test_no_run_of_a_thousand_nights_ends_after_the_hard_end() -> None:
    nights = [night(random.Random(seed)) for seed in range(NIGHTS)]
    assert sum(end > NIGHT_S for ends, _ in nights for end in ends) == 0
    assert min(len(ends) for ends, _ in nights) > 10


def test_a_run_that_breaks_its_limit_may_end_after_it() -> None:
    """That is what the controller ends at the hard end itself."""
    nights = [night(random.Random(seed), beyond=0.2) for seed in range(100)]
    assert any(left_s < 0 for _, left_s in nights)


def test_a_workload_that_never_ran_may_take_what_earlier_suites_took_or_its_limit() -> None:
    run, none = PLAN.runs[0], History()
    assert admission.needed_s(PLAN, none, run, {}) == LIMIT_S
    assert admission.needed_s(PLAN, none, run, {run.workload: 100.0}) == 100 * RESERVE
    endless = replace(PLAN, run_limit_s=None)
    assert not Bounds(seconds=1e9, since_ns=admission.boottime_ns()).admit(endless, none, run)


def test_bounds_hold_in_the_boot_that_they_were_set_in(tmp_path: Path) -> None:
    assert admission.load(tmp_path) == Bounds()
    text = '{"seconds": 100, "known_s": {"idle": 1.5}}'
    assert cli.main(["bound", "--suite-dir", str(tmp_path), text]) == 0
    bounds = admission.load(tmp_path)
    assert 99 < bounds.left_s <= 100 and bounds.known_s == {"idle": 1.5}
    write_json(tmp_path / admission.FILE, {"seconds": 0.0, "boot_id": "another"})
    assert admission.load(tmp_path) == Bounds()
    with pytest.raises(SystemExit):
        cli.main(["bound", "--suite-dir", str(tmp_path), '{"seconds": "soon"}'])
