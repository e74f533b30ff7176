"""`python -m validation.faults [--quick] [PART…]`: every fault for real, in a separate lab.

Each part leaves its outcome, its suite and its log in build/faults/<part>; the table and
build/bench/faults.json are made of all outcomes that are there, so parts can be done one by one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from contract.errors import LabError
from lab import lifecycle
from validation import bench
from validation.bench import missed, table
from validation.faults import away, cuts, evenings, full, kills, results, upsets
from validation.faults.trial import PLACE, Fault, Outcome, read_outcomes, write_outcome
from validation.scene import Scene, lab_parser

# In the order in which they are tried: the quick ones first.
FAULTS: tuple[Fault, ...] = (
    kills.AGENT,
    kills.RECORDER,
    kills.CONTROLLER,
    upsets.CTRL_C,
    cuts.WATCHDOG,
    upsets.CLOCK,
    upsets.DRIVE,
    upsets.RUN_HANGS,
    upsets.KERNEL_HANGS,
    full.CONTROLLER,
    full.TARGET,
    away.NETWORK,
    away.METER,
    evenings.EVENINGS_APART,
    cuts.POWER,
)
NAMES = tuple(fault.name for fault in FAULTS)


def inject(scene: Scene, fault: Fault, seed: int, quick: bool, ready: bool) -> Outcome:
    """Inject one fault and return its outcome, also after an error; prepare the lab first."""
    scene.say(f"{fault.name}: {fault.does}; then {fault.undone}")
    started = time.monotonic()
    try:
        if not ready:
            scene.ready()
        outcome = fault.run(scene, seed, quick)
    except Exception as error:  # noqa: BLE001 - the other faults are to be tried all the same
        outcome = Outcome(fault.name, quick=quick, error=str(error))
        scene.say(f"{fault.name}: NO END: {error}")
        if not isinstance(error, LabError):
            scene.say(traceback.format_exc())
    outcome.machine = scene.machine.name if lifecycle.running(scene.layout) else ""
    outcome.took_s = round(time.monotonic() - started, 1)
    write_outcome(scene.folder / fault.name, outcome)
    scene.say(f"{fault.name}: {outcome.took_s:.0f} s")
    return outcome


def _try_all(scene: Scene, chosen: Sequence[Fault], seed: int, quick: bool) -> None:
    """Inject one fault after another, except those that this guest's machine cannot have."""
    scene.ready()
    ready, machine = True, scene.machine
    for fault in chosen:
        if missing := fault.needs - machine.abilities:
            lacks = ", ".join(sorted(missing))
            scene.say(f"{fault.name}: left out, the guest on {machine.name} has no {lacks}")
            continue
        outcome = inject(scene, fault, seed, quick, ready)
        # After a trial that came to no end, the target's state is unknown.
        ready = not outcome.error and lifecycle.running(scene.layout)


def _tabled(scene: Scene, overnight: Path | None, load_1_min: float) -> int:
    stored = read_outcomes(scene.folder)
    outcomes = [stored[name] for name in (*NAMES, "overnight") if name in stored]
    rows = results.rows(outcomes, overnight)
    machines = sorted({outcome.machine for outcome in outcomes})
    text = f"{table(rows)}\n\n{results.matrix(outcomes)}"
    (scene.folder / "table.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    bench.write(results.BENCH, rows, ", ".join(machines), load_1_min)
    print(f"\n{results.BENCH}")
    return int(missed(rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials; return 0 if all figures meet their targets, else 1; 130 after Ctrl-C."""
    parser = lab_parser("validation.faults", __doc__, PLACE)
    names = ", ".join(NAMES)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{names}, or how they begin")
    parser.add_argument("--quick", action="store_true", help="shorten what takes long")
    parser.add_argument("--overnight", type=Path, help="suite whose measuring share is shown, too")
    parser.add_argument("--table", action="store_true", help="only of what was tried before")
    options = parser.parse_args(arguments)
    for part in options.parts:
        if not any(name.startswith(part) for name in NAMES):
            parser.error(f"there is no fault {part}: there are {names}")
    # A background job's shell switches Ctrl-C off, also for the controllers that are to get it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    scene = Scene.at(options.dir.absolute())
    load_1_min = os.getloadavg()[0]
    chosen = [fault for fault in FAULTS if fault.name.startswith(tuple(options.parts) or ("",))]

    def work() -> int:
        if not options.table:
            _try_all(scene, chosen, options.seed, options.quick)
        return _tabled(scene, options.overnight, load_1_min)

    return scene.run(work, options.keep_lab or options.table, scene.folder)


if __name__ == "__main__":
    sys.exit(main())
