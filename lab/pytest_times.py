"""A plugin of pytest: prints the time that each part took, and keeps it in build/bench/tests.json.

A part is the folder above `tests`. Its seconds are those of its tests and their fixtures: where
several processes share the tests, their sum exceeds the wall time.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lab.state import REPOSITORY

PATH = REPOSITORY / "build" / "bench" / "tests.json"
SLOWEST = 20


class Times:
    """Adds up the durations of one session; the file is written where the tier has a name."""

    def __init__(self, tier: str | None, path: Path = PATH) -> None:
        self._tier = tier
        self._path = path
        self._start_s = time.monotonic()
        self._durations: list[tuple[str, float]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a setup, call or teardown, in the process that the user started."""
        self._durations.append((report.nodeid, report.duration))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, and write the file."""
        wall_s = time.monotonic() - self._start_s
        parts = _totals((part_of(test), seconds) for test, seconds in self._durations)
        terminalreporter.section(f"time by part (wall time {wall_s:.0f} s)")
        for part, seconds in parts.items():
            terminalreporter.line(f"{seconds:8.1f} s  {part}")
        if self._tier:
            slowest = list(_totals(self._durations).items())[:SLOWEST]
            modules = _totals((test.partition("::")[0], s) for test, s in self._durations)
            times = {"tier": self._tier, "wall_s": round(wall_s, 3), "parts": parts}
            times["modules"] = modules
            _merge(self._path, {**times, "slowest": [{"test": t, "s": s} for t, s in slowest]})


def part_of(test: str) -> str:
    """Return the part that a test belongs to: `controller` of `controller/tests/….py::…`."""
    return test.partition("::")[0].rpartition("/tests/")[0] or "."


def _totals(durations: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Seconds of each name, the longest first."""
    totals: defaultdict[str, float] = defaultdict(float)
    for name, seconds in durations:
        totals[name] += seconds
    longest_first = sorted(totals.items(), key=lambda item: -item[1])
    return {name: round(seconds, 1) for name, seconds in longest_first}


def _merge(path: Path, times: dict[str, Any]) -> None:
    """Put one tier's times into the file, a list in which the other tiers keep theirs."""
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = []
    path.parent.mkdir(parents=True, exist_ok=True)
    tiers = [tier for tier in before if tier["tier"] != times["tier"]]
    path.write_text(json.dumps([*tiers, times], indent=1) + "\n", encoding="utf-8")
