"""`python -m lab.metrology [--quick] [PART…]`: measure against known truth; all parts by default.

Each part is one module of this package with `measure(quick) -> list[Figure]` and, where a picture
says more than the figure, `plot(path)`. Prints a table and writes build/bench/metrology.json, the
commit and the machine beside it, and the plots. With parts named, only their figures are replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from agent.controller.bench import machine
from lab.metrology.figure import Figure
from lab.paths import REPOSITORY

PARTS = (
    "wraps",
    "faults",
    "alignment",
    "phases",
    "coverage",
    "replug",
    "cost",
    "stream",
    "throughput",
)


def load(part: str) -> ModuleType:
    """The module of a part."""
    return import_module(f"lab.metrology.{part}")


def measured(part: str, quick: bool) -> list[dict[str, Any]]:
    """The figures of one part as the JSON file holds them."""
    print(f"{part} …", file=sys.stderr, flush=True)
    start_s = time.monotonic()
    found: list[Figure] = load(part).measure(quick=quick)
    print(f"{part}: {time.monotonic() - start_s:.0f} s", file=sys.stderr, flush=True)
    return [{"part": part, **asdict(figure)} for figure in found]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The figures for people, a line each, a heading for each part."""
    width = max((len(row["figure"]) for row in rows), default=0)
    lines = [f"{'figure':{width}} {'value':>12} {'unit':6} {'target':>9}  meets"]
    part = ""
    for row in rows:
        if row["part"] != part:
            part = row["part"]
            lines.append(f"-- {part}")
        target = "" if row["target"] is None else f"{row['target']:g}"
        meets = {True: "yes", False: "NO", None: ""}[row["meets"]]
        value = f"{row['value']:.4g}" if abs(row["value"]) < 1e4 else f"{row['value']:,.0f}"
        lines.append(f"{row['figure']:{width}} {value:>12} {row['unit']:6} {target:>9}  {meets}")
    return "\n".join(lines)


def merged(path: Path, fresh: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the file holds of the other parts, and the new figures, in the order of the parts."""
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = []
    done = {row["part"] for row in fresh}
    rows = [row for row in before if row.get("part") not in done] + list(fresh)
    return sorted((row for row in rows if row["part"] in PARTS), key=_place)


def _place(row: dict[str, Any]) -> int:
    return PARTS.index(row["part"])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 where a figure misses its target."""
    parser = argparse.ArgumentParser(prog="python -m lab.metrology")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="few trials, nothing is written")
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}: there are {', '.join(PARTS)}")
    parts = [part for part in PARTS if not options.parts or part in options.parts]
    load_1_min = os.getloadavg()[0]
    rows = [row for part in parts for row in measured(part, options.quick)]
    print(table(rows))
    if not options.quick:
        _write(rows, parts, load_1_min)
    return 0 if all(row["meets"] is not False for row in rows) else 1


def _write(rows: list[dict[str, Any]], parts: Sequence[str], load_1_min: float) -> None:
    folder = REPOSITORY / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "metrology.json"
    path.write_text(json.dumps(merged(path, rows), indent=2) + "\n", encoding="utf-8")
    where = machine("none: simulated meters on this machine")
    where["machine"]["load_average_1_min"] = round(load_1_min, 2)
    beside = path.with_suffix(".machine.json")
    beside.write_text(json.dumps(where, indent=2) + "\n", encoding="utf-8")
    for part in parts:
        if plot := getattr(load(part), "plot", None):
            plot(folder / f"metrology-{part}.png")
    print(f"\n{path} and {beside.name}: commit {where['commit'][:12]}")


if __name__ == "__main__":
    sys.exit(main())
