"""Outcomes as figures with targets, as the table of faults, and as the file of the benchmark."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from validation import bench
from validation.bench import Figure, Row, at_least, at_most, rows_of
from validation.faults.trial import Outcome
from validation.papers import last_attempts

RESUMED_S = 60.0
MEASURING_SHARE = 0.85
IDLE_COST = 0.1
BENCH = bench.FOLDER / "faults.json"
HEADS = ("fault", "times", "reached", "seen", "lost", "false", "resumed s", "verify", "report")


def rows(outcomes: Sequence[Outcome], overnight: Path | None) -> list[Row]:
    """Return the figures of all faults, then those over all of them."""
    figures = [row for o in outcomes for row in rows_of(o.name, _figures(o))]
    figures += rows_of("all faults", _overall(outcomes))
    return figures if overnight is None else figures + rows_of("overnight", _overnight(overnight))


def _figures(outcome: Outcome) -> list[Figure]:
    name = f"{outcome.name}{', shortened' if outcome.quick else ''}"
    figures = [at_least(f"{name}: times", outcome.times, "", outcome.wanted)]
    if outcome.wanted_reached:
        reached = len(set(outcome.reached))
        expected_reached = outcome.wanted_reached
        figures.append(at_least(f"{name}: transitions reached", reached, "", expected_reached))
    judged = outcome.judgement
    if not judged:
        return [*figures, at_most(f"{name}: came to no end", 1, "", 0)]
    figures += [
        Figure(f"{name}: finished lines seen", judged["observed"], ""),
        at_least(f"{name}: runs finished in the end", judged["finished"], "", judged["runs"]),
        at_most(f"{name}: finished runs lost", len(judged["lost"]), "", 0),
        at_most(f"{name}: false finished", len(judged["false"]), "", 0),
    ]
    if outcome.resumed_s:
        median = statistics.median(outcome.resumed_s)
        figures.append(Figure(f"{name}: resumed, median", round(median, 1), "s"))
        longest = round(max(outcome.resumed_s), 1)
        figures.append(at_most(f"{name}: resumed, longest", longest, "s", RESUMED_S))
    figures += [
        at_most(f"{name}: {title}", value, unit, most) for title, value, unit, most in outcome.extra
    ]
    figures.append(at_least(f"{name}: verify passes", int(judged["verified"]), "", 1))
    figures.append(at_least(f"{name}: the report names it", int(judged["named"]), "", 1))
    return figures


def _overall(outcomes: Sequence[Outcome]) -> list[Figure]:
    judged = [o.judgement for o in outcomes if o.judgement]
    resumed_s = [seconds for o in outcomes for seconds in o.resumed_s]
    figures = [
        Figure("faults tried", len(outcomes), ""),
        at_least("trials that came to their end", len(judged), "", len(outcomes)),
        Figure("harm done, times", sum(o.times for o in outcomes), ""),
        Figure("finished lines seen", sum(j["observed"] for j in judged), ""),
        at_most("finished runs lost", sum(len(j["lost"]) for j in judged), "", 0),
        at_most("false finished", sum(len(j["false"]) for j in judged), "", 0),
        at_least("verify passes", sum(j["verified"] for j in judged), "", len(outcomes)),
        at_least("the report names it", sum(j["named"] for j in judged), "", len(outcomes)),
    ]
    if resumed_s:
        figures.append(at_most("resumed, longest", round(max(resumed_s), 1), "s", RESUMED_S))
    return figures


def _overnight(suite_dir: Path) -> list[Figure]:
    """Return the first figures of `fde summary`, from the suite's own timing.json."""
    timing: Mapping[str, Any] = json.loads((suite_dir / "timing.json").read_text(encoding="utf-8"))
    share = round(float(timing["measuring_share"]), 3)
    figures = [
        Figure("overnight: wall time", round(float(timing["wall_s"]) / 60, 1), "min"),
        at_least("overnight: share of it that is measuring", share, "", MEASURING_SHARE),
    ]
    if cost := _idle_cost_percent(suite_dir):
        figures.append(
            at_most("overnight: agent's cost in phases of rest", cost, "% CPU", IDLE_COST)
        )
    return figures


def _idle_cost_percent(suite_dir: Path) -> float:
    """Return the agent's share of CPU time over all finished phases `idle`; 0 without."""
    spent_s = length_s = 0.0
    for run in last_attempts(suite_dir):
        for phase in run["phases"]:
            if run["status"] == "finished" and phase["name"] == "idle":
                spent_s += phase["own_cpu_s"]
                length_s += (phase["t_end_ns"] - phase["t_start_ns"]) / 1e9
    return round(100 * spent_s / length_s, 3) if length_s else 0.0


def matrix(outcomes: Sequence[Outcome]) -> str:
    """Format the outcomes for people, one line a fault."""
    lines = [HEADS, *(_cells(outcome) for outcome in outcomes)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cells(outcome: Outcome) -> tuple[str, ...]:
    judged = outcome.judgement
    reached = f"{len(set(outcome.reached))}"
    reached += f" of {outcome.wanted_reached}" if outcome.wanted_reached else ""
    resumed = "–"
    if outcome.resumed_s:
        middle, longest = statistics.median(outcome.resumed_s), max(outcome.resumed_s)
        resumed = f"{middle:.0f}, at most {longest:.0f}"
    head = (
        outcome.name + (" (shortened)" if outcome.quick else ""),
        f"{outcome.times} of {outcome.wanted}",
        reached,
    )
    if not judged:
        return (*head, "–", "–", "–", resumed, "–", f"NO END: {outcome.error[:60]}")
    return (
        *head,
        str(judged["observed"]),
        str(len(judged["lost"])),
        str(len(judged["false"])),
        resumed,
        "passes" if judged["verified"] else "FAILS",
        "names it" if judged["named"] else "SILENT",
    )
