"""Try faults of `fde here` in a lab and print its messages and what remains."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from contract.files import write_json
from lab import lifecycle
from lab.state import REPOSITORY, Layout
from validation.own_machine import battery
from validation.own_machine.faults import Result, faults, suffer
from validation.own_machine.machine import OwnMachine

PLACE = REPOSITORY / "build" / "own-machine"
RESULTS = PLACE / "faults.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if anything was left behind after the next `fde here`."""
    kinds = {fault.name: fault for fault in faults()}
    parser = argparse.ArgumentParser(prog="python -m validation.own_machine", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FAULT", help=", ".join(kinds))
    parser.add_argument("--minutes", type=float, default=2.0, help="of each `fde here`")
    parser.add_argument("--lab", type=Path, help="a lab with --truth that is up and furnished")
    options = parser.parse_args(arguments)
    layout = Layout((options.lab or PLACE / "lab").absolute())
    try:
        if options.lab:
            machine = OwnMachine(layout)
        else:
            lifecycle.up(layout, print, lifecycle.LabOptions(truth=True))
            machine = OwnMachine.furnish(layout, print)
        with battery.discharging(layout):
            results = []
            for name in options.names or kinds:
                machine.show_battery()
                results.append(suffer(machine, kinds[name], options.minutes))
                print(row(results[-1]), flush=True)
                _record(results[-1])
    finally:
        if not options.lab:
            lifecycle.down(layout)
    return int(any(result.left_at_last for result in results))


def row(result: Result) -> str:
    """Return a row of the table in Markdown."""
    last_words = " / ".join(result.messages[-3:])
    cells = [result.name, str(result.code), last_words, "; ".join(result.notes)]
    cells += [f"{len(some)}: {', '.join(some[:4])}" for some in (result.left, result.left_at_last)]
    return "| " + " | ".join([*cells, f"{result.took_s:.0f} s"]) + " |"


def _record(result: Result) -> None:
    """Keep the newest result of each fault, with all of its lines."""
    PLACE.mkdir(parents=True, exist_ok=True)
    table = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    write_json(RESULTS, {**table, result.name: asdict(result)})


if __name__ == "__main__":
    sys.exit(main())
