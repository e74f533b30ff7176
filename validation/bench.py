"""Figures of the benchmarks with their targets, the printed table, and the file in build/bench.

A benchmark is a package whose parts are modules with `measure(quick) -> list[Figure]` and, where a
picture shows more than the figure, `plot(path)`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from lab.state import REPOSITORY
from validation.testbed_figures import machine

Row = dict[str, Any]
FOLDER = REPOSITORY / "build" / "bench"


@dataclass(frozen=True)
class Figure:
    """A measured figure and its target; `meets` is None without a target.

    A target that is a range is given as text: `94–96`. With `allowed` a miss is shown, but is no
    failure of the program.
    """

    figure: str
    value: float
    unit: str
    target: float | str | None = None
    meets: bool | None = None
    allowed: bool = False


def at_most(figure: str, value: float, unit: str, target: float, regression: float = 0.0) -> Figure:
    """Return a figure that meets its target when it is no larger.

    With `regression` a miss is allowed up to that.
    """
    return Figure(figure, value, unit, target, value <= target, target < value <= regression)


def at_least(figure: str, value: float, unit: str, target: float) -> Figure:
    """Return a figure that meets its target when it is no smaller."""
    return Figure(figure, value, unit, target, value >= target)


def within(figure: str, value: float, unit: str, least: float, most: float) -> Figure:
    """Return a figure that meets its target if it is in the range, limits included."""
    return Figure(figure, value, unit, f"{least:g}–{most:g}", least <= value <= most)


@dataclass(frozen=True)
class Bench:
    """A benchmark: `build/bench/<name>.json` from the parts of `package`.

    `subject` is what was measured, for the file of the machine.
    """

    name: str
    package: str
    parts: tuple[str, ...]
    subject: str

    @classmethod
    def from_package(cls, name: str, package: str, subject: str) -> Bench:
        """Build a benchmark from every module of the package that has `measure`, by name."""
        names = sorted(m.name for m in iter_modules(import_module(package).__path__))
        modules = {n: import_module(f"{package}.{n}") for n in names if not n.startswith("_")}
        parts = tuple(n for n, module in modules.items() if hasattr(module, "measure"))
        return cls(name, package, parts, subject)

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command line; return 1 if a figure misses its target."""
        options = self._parsed(arguments)
        parts = [part for part in self.parts if not options.parts or part in options.parts]
        load_1_min = os.getloadavg()[0]
        rows = [row for part in parts for row in self.measured(part, options.quick)]
        print(table(rows))
        if not options.quick:
            self._write(rows, parts, load_1_min)
        return int(missed(rows))

    def measured(self, part: str, quick: bool) -> list[Row]:
        """Return the figures of one part as the JSON file holds them."""
        print(f"{part} …", file=sys.stderr, flush=True)
        start_s = time.monotonic()
        figures: list[Figure] = self._module(part).measure(quick=quick)
        print(f"{part}: {time.monotonic() - start_s:.0f} s", file=sys.stderr, flush=True)
        return rows_of(part, figures)

    def merged(self, path: Path, fresh: Sequence[Row]) -> list[Row]:
        """Return the file's figures of the other parts and the new figures, in the parts' order."""
        rows = [row for row in merged(path, fresh) if row["part"] in self.parts]
        return sorted(rows, key=lambda row: self.parts.index(row["part"]))

    def _parsed(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=f"python -m {self.package.replace('.', ' ')}")
        parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(self.parts))
        parser.add_argument("--quick", action="store_true", help="few trials, nothing is written")
        options = parser.parse_args(arguments)
        unknown = [part for part in options.parts if part not in self.parts]
        if unknown:
            parser.error(f"there is no part {unknown[0]}: there are {', '.join(self.parts)}")
        return options

    def _module(self, part: str) -> ModuleType:
        return import_module(f"{self.package}.{part}")

    def _write(self, rows: list[Row], parts: Sequence[str], load_1_min: float) -> None:
        path = FOLDER / f"{self.name}.json"
        where = write(path, self.merged(path, rows), self.subject, load_1_min)
        for part in parts:
            if plot := getattr(self._module(part), "plot", None):
                plot(FOLDER / f"{self.name}-{part}.png")
        print(f"\n{path} and {path.stem}.machine.json: commit {where['commit'][:12]}")


def rows_of(part: str, figures: Iterable[Figure]) -> list[Row]:
    """Return the figures of one part as the JSON file holds them."""
    return [{"part": part, **asdict(figure)} for figure in figures]


def missed(rows: Iterable[Row]) -> bool:
    """Return whether a figure misses its target by more than is allowed."""
    return any(row["meets"] is False and not row.get("allowed") for row in rows)


def merged(path: Path, fresh: Sequence[Row]) -> list[Row]:
    """Return the file's figures of the other parts, then the new figures."""
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = []
    fresh_parts = {row["part"] for row in fresh}
    return [row for row in before if row.get("part") not in fresh_parts] + list(fresh)


def write(path: Path, rows: Sequence[Row], subject: str, load_1_min: float) -> dict[str, Any]:
    """Write the figures, and next to them commit and machine; return the latter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(rows), indent=2) + "\n", encoding="utf-8")
    where: dict[str, Any] = machine(subject)
    where["machine"]["load_average_1_min"] = round(load_1_min, 2)
    beside = path.with_suffix(".machine.json")
    beside.write_text(json.dumps(where, indent=2) + "\n", encoding="utf-8")
    return where


def table(rows: Sequence[Row]) -> str:
    """Format the figures for people, a line each, a heading for each part."""
    width = max((len(row["figure"]) for row in rows), default=0)
    lines = [f"{'figure':{width}} {'value':>12} {'unit':6} {'target':>9}  meets"]
    part = ""
    for row in rows:
        if row["part"] != part:
            part = row["part"]
            lines.append(f"-- {part}")
        target = "" if row["target"] is None else row["target"]
        if not isinstance(target, str):
            target = f"{target:g}"
        miss = "no, allowed" if row.get("allowed") else "NO"
        meets = {True: "yes", False: miss, None: ""}[row["meets"]]
        value = f"{row['value']:.4g}" if abs(row["value"]) < 1e4 else f"{row['value']:,.0f}"
        lines.append(f"{row['figure']:{width}} {value:>12} {row['unit']:6} {target:>9}  {meets}")
    return "\n".join(lines)
