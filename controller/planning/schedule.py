"""The order of runs: blocks of shuffled configurations, drift checks between them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

# The workload that runs before, between and after the blocks on the baseline.
DRIFT_CHECK = "drift_check"


@dataclass(frozen=True)
class Turn:
    """An entry of the suite as a block does it: how often, and on which configurations."""

    name: str
    configurations: tuple[str, ...]
    repeat: int = 1


def order(
    configurations: Sequence[str],
    turns: Sequence[Turn],
    *,
    blocks: int,
    seed: int,
    begun: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Runs in the order of execution, those `begun` first, whose blocks these continue from.

    Each block enters every configuration once, in random order, and does there all that is to be
    done on it, in random order. It begins with the configuration with which the block before ended:
    so each follows itself as often as any other, and what one leaves behind for the next cancels in
    the ratios. Each block has its own generator, so that a longer plan begins like a shorter one.
    """
    runs = [dict(run) for run in begun]
    first = runs[-1]["block"] + 1 if runs else 0
    for block in range(first, first + blocks):
        shuffle = random.Random(f"{seed}/{block}")
        entered = shuffle.sample(configurations, len(configurations))
        if runs and (last := runs[-1]["configuration"]) in entered:
            entered.sort(key=lambda name: name != last)
        for configuration in entered:
            repeats = [one for turn in turns for one in _repeats(turn, configuration)]
            for one in shuffle.sample(repeats, len(repeats)):
                run = {"block": block, "configuration": configuration, **one}
                runs.append(_numbered(len(runs), run))
    return runs


def with_drift_checks(
    runs: Sequence[Mapping[str, Any]], configuration: str, every: int
) -> list[dict[str, Any]]:
    """The drift check before all runs, after each `every` blocks, and after all runs."""
    check = {"configuration": configuration, "workload": DRIFT_CHECK}
    sequence: list[Mapping[str, Any]] = []
    for block, of_block in groupby(runs, key=lambda run: int(run["block"])):
        if block % every == 0:
            sequence.append({**check, "block": block})
        sequence.extend(of_block)
    sequence.append({**check, "block": runs[-1]["block"]})
    return [_numbered(index, run) for index, run in enumerate(sequence)]


def _repeats(turn: Turn, configuration: str) -> list[dict[str, Any]]:
    if configuration not in turn.configurations:
        return []
    if turn.repeat == 1:
        return [{"workload": turn.name}]
    return [{"workload": turn.name, "repeat": number} for number in range(turn.repeat)]


def _numbered(index: int, run: Mapping[str, Any]) -> dict[str, Any]:
    block, configuration, name = run["block"], run["configuration"], run["workload"]
    repeated = "repeat" in run
    number = f".{run['repeat']}" if repeated else ""
    return {
        "run_id": f"{index:04d}-b{block:02d}-{configuration}-{name}{number}",
        "index": index,
        "block": block,
        "configuration": configuration,
        "workload": name,
        **({"repeat": run["repeat"]} if repeated else {}),
    }
