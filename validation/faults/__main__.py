"""`python -m validation.faults [--quick] [PART…]`: every fault for real, in a lab of its own.

Each part leaves its outcome, its suite and its log in build/faults/<part>; the table and
build/bench/faults.json are made of all outcomes that are there, so parts can be done one by one.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from contract.errors import LabError
from contract.interrupts import term_interrupts
from lab import lifecycle
from lab.state import REPOSITORY
from validation.bench import table
from validation.faults import results
from validation.faults.fault import Fault, TrialOptions
from validation.faults.registry import FAULTS
from validation.faults.trial import Outcome, read_outcomes, write_outcome
from validation.scene import Scene

PLACE = REPOSITORY / "build" / "faults"


def inject(scene: Scene, fault: Fault, wish: TrialOptions, ready: bool) -> Outcome:
    """One fault; whatever fails, there is an outcome. The lab is made ready where it is not."""
    scene.say(f"{fault.name}: {fault.does}; then {fault.undone}")
    started = time.monotonic()
    try:
        if not ready:
            scene.ready()
        outcome = fault.inject(scene, wish)
    except Exception as error:  # noqa: BLE001 - the other faults are to be tried all the same
        outcome = Outcome(fault.name, quick=wish.quick, error=str(error))
        scene.say(f"{fault.name}: NO END: {error}")
        if not isinstance(error, LabError):
            scene.say(traceback.format_exc())
    outcome.machine = scene.machine.name if lifecycle.running(scene.layout) else ""
    outcome.took_s = round(time.monotonic() - started, 1)
    write_outcome(scene.folder / fault.name, outcome)
    scene.say(f"{fault.name}: {outcome.took_s:.0f} s")
    return outcome


def _possible(chosen: Sequence[Fault], scene: Scene) -> list[Fault]:
    """Those that the guest's machine has all for; what it lacks is said."""
    machine = scene.machine
    for fault in chosen:
        for ability in sorted(fault.needs - machine.abilities):
            scene.say(f"{fault.name}: left out, the guest on {machine.name} has no {ability}")
    return [fault for fault in chosen if fault.needs <= machine.abilities]


def _tabled(scene: Scene, overnight: Path | None, load_1_min: float) -> int:
    known = read_outcomes(scene.folder)
    outcomes = [
        known[name] for name in (*(fault.name for fault in FAULTS), "overnight") if name in known
    ]
    found = results.rows(outcomes, overnight)
    machines = [outcome.machine for outcome in outcomes]
    text = f"{table(found)}\n\n{results.matrix(outcomes)}"
    (scene.folder / "table.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    print(f"\n{results.write(found, machines, load_1_min)}")
    return 0 if all(row["meets"] is not False for row in found) else 1


def _parser() -> argparse.ArgumentParser:
    names = ", ".join(fault.name for fault in FAULTS)
    parser = argparse.ArgumentParser(prog="python -m validation.faults", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{names}, or how they begin")
    parser.add_argument("--quick", action="store_true", help="shorten what takes long")
    parser.add_argument("--seed", type=int, default=1, help="says when chance strikes")
    parser.add_argument("--dir", type=Path, default=PLACE, help="default build/faults")
    parser.add_argument("--overnight", type=Path, help="suite whose measuring share is shown, too")
    parser.add_argument("--table", action="store_true", help="only of what was tried before")
    parser.add_argument("--keep-lab", action="store_true", help="do not take the lab down")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where all figures meet their targets, else 1; 130 after Ctrl-C."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for part in options.parts:
        if not any(fault.name.startswith(part) for fault in FAULTS):
            known = ", ".join(fault.name for fault in FAULTS)
            parser.error(f"there is no fault {part}: there are {known}")
    # A background job's shell switches Ctrl-C off, also for the controllers that are to hear it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    scene = Scene.at(options.dir.absolute())
    load_1_min = os.getloadavg()[0]
    begun = tuple(options.parts) or ("",)
    chosen = [fault for fault in FAULTS if fault.name.startswith(begun)]
    try:
        with term_interrupts():
            ready = False
            if not options.table:
                scene.ready()
                ready = True
                chosen = _possible(chosen, scene)
            for fault in [] if options.table else chosen:
                outcome = inject(scene, fault, TrialOptions(options.quick, options.seed), ready)
                # After a trial that came to no end, nobody knows what the target is like.
                ready = not outcome.error and lifecycle.running(scene.layout)
    except KeyboardInterrupt:
        print("fde: interrupted; what was tried is kept", file=sys.stderr)
        return 130
    finally:
        if not (options.keep_lab or options.table):
            lifecycle.down(scene.layout)
    return _tabled(scene, options.overnight, load_1_min)


if __name__ == "__main__":
    sys.exit(main())
