"""The order of runs: blocks of shuffled configurations with drift checks between them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from contract.plan import Run

# The workload that runs before, between and after the blocks on the baseline.
DRIFT_CHECK = "drift_check"


@dataclass(frozen=True)
class Turn:
    """An entry of the suite in a block: its configurations, and its number of repetitions."""

    name: str
    configurations: tuple[str, ...]
    repeat: int = 1


def order(
    configurations: Sequence[str],
    turns: Sequence[Turn],
    *,
    blocks: int,
    seed: int,
    earlier: Sequence[Run] = (),
) -> list[Run]:
    """Return runs in the order of execution: the `earlier` ones, then those of `blocks` more.

    Each block enters every configuration once, in random order, and runs all entries there, in
    random order. The first place is drawn freely: an order that hangs on the block before has a
    period of two blocks, which air conditioning or a timer may have too. Each block has its own
    generator, so that a longer plan begins like a shorter one.
    """
    runs = list(earlier)
    first = runs[-1].block + 1 if runs else 0
    for block in range(first, first + blocks):
        shuffle = random.Random(f"{seed}/{block}")
        entered = shuffle.sample(configurations, len(configurations))
        for configuration in entered:
            repeats = [
                (turn.name, number if turn.repeat > 1 else None)
                for turn in turns
                if configuration in turn.configurations
                for number in range(turn.repeat)
            ]
            for workload, repeat in shuffle.sample(repeats, len(repeats)):
                runs.append(_run(len(runs), block, configuration, workload, repeat))
    return runs


def with_drift_checks(runs: Sequence[Run], configuration: str, every: int) -> list[Run]:
    """Insert the drift check before every `every`-th block, and after the last one."""
    checked: list[Run] = []

    def check(block: int) -> None:
        checked.append(_run(len(checked), block, configuration, DRIFT_CHECK, None))

    for block, block_runs in groupby(runs, key=lambda run: run.block):
        if block % every == 0:
            check(block)
        for run in block_runs:
            checked.append(_run(len(checked), block, run.configuration, run.workload, run.repeat))
    check(runs[-1].block)
    return checked


def _run(index: int, block: int, configuration: str, workload: str, repeat: int | None) -> Run:
    number = "" if repeat is None else f".{repeat}"
    run_id = f"{index:04d}-b{block:02d}-{configuration}-{workload}{number}"
    return Run(run_id, index, block, configuration, workload, repeat)
