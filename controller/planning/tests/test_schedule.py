"""The order of runs: the same seed gives the same one, each block is whole."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from contract.plan import Run
from controller.planning import schedule
from controller.planning.schedule import Turn


def order(stacks: list[str], loads: list[str], *, blocks: int, seed: int) -> list[Run]:
    """Order workloads that run once on every configuration."""
    turns = [Turn(load, tuple(stacks)) for load in loads]
    return schedule.order(stacks, turns, blocks=blocks, seed=seed)


NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)


@given(NAMES, NAMES, st.integers(1, 5), st.integers(0, 2**32))
def test_each_block_enters_each_configuration_once_and_runs_all_workloads(
    stacks: list[str], loads: list[str], blocks: int, seed: int
) -> None:
    runs = order(stacks, loads, blocks=blocks, seed=seed)
    assert [run.index for run in runs] == list(range(len(runs)))
    for block in range(blocks):
        mine = [run for run in runs if run.block == block]
        assert Counter((run.configuration, run.workload) for run in mine) == Counter(
            (stack, load) for stack in stacks for load in loads
        )
        entered = [name for name, _ in groupby(run.configuration for run in mine)]
        assert sorted(entered) == sorted(stacks)
    assert [run.block for run in runs] == sorted(run.block for run in runs)


def test_the_first_place_of_a_block_does_not_hang_on_the_block_before() -> None:
    """An order with a period of two blocks would follow a disturbance with that period."""
    again = 0
    for seed in range(300):
        runs = order(list("abc"), ["x"], blocks=2, seed=seed)
        again += runs[2].configuration == runs[3].configuration
    assert 70 <= again <= 130


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_a_longer_plan_begins_like_a_shorter_one(seed: int, blocks: int) -> None:
    shorter = order(["a", "b", "c"], ["x", "y"], blocks=blocks, seed=seed)
    longer = order(["a", "b", "c"], ["x", "y"], blocks=blocks + 1, seed=seed)
    assert longer[: len(shorter)] == shorter


def test_order_changes_with_the_seed_and_between_blocks() -> None:
    stacks, loads = list("abcd"), list("uvwxyz")
    runs = order(stacks, loads, blocks=2, seed=1)
    assert order(stacks, loads, blocks=2, seed=2) != runs
    first, second = (
        [(run.configuration, run.workload) for run in runs if run.block == block]
        for block in (0, 1)
    )
    assert first != second


def test_every_position_is_taken_by_every_configuration() -> None:
    """No configuration may own the cold start of the blocks."""
    first = Counter(
        order(["a", "b", "c"], ["x"], blocks=1, seed=seed)[0].configuration for seed in range(300)
    )
    assert all(70 <= first[name] <= 130 for name in "abc")
