"""`python -m validation.faults.overnight`: a suite with three power cuts and a pulled meter.

The suite `overnight` at the lab's scale, an hour or more, unattended: the harm comes at seeded
moments spread over the suite. Afterwards the report, `verify` and the summary; the log is in
build/faults/overnight/.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lab import power
from lab.state import REPOSITORY
from validation.faults import away, cuts, results
from validation.faults.trial import PLACE, Outcome, Trial, write_outcome
from validation.scene import Scene, lab_parser

NAME = "overnight"
CUT, UNPLUG = "power cut", "meter unplugged"
UNPLUGGED_S = 180.0
SPREAD_S = 30.0
END_LIMIT_S = 6 * 3600.0


def moments(seed: int, runs: int) -> list[tuple[int, str]]:
    """Return the faults of a night by the number of finished runs before: one in each quarter."""
    chance = random.Random(f"overnight/{seed}")
    events = [CUT, CUT, CUT, UNPLUG]
    chance.shuffle(events)
    shares = [(quarter + chance.uniform(0.2, 0.8)) / len(events) for quarter in range(len(events))]
    return [
        (max(1, round(share * runs)), event) for share, event in zip(shares, events, strict=True)
    ]


def _reach(trial: Trial, count: int) -> bool:
    """Wait until this many runs are finished; return false if the suite has ended before."""
    while trial.finished() < count:
        trial.keep_going()
        if trial.sealed:
            return False
        time.sleep(2)
    return True


def _happen(trial: Trial, event: str, chance: random.Random, outcome: Outcome) -> None:
    time.sleep(chance.uniform(0, SPREAD_S))
    last = trial.observer.lines()[-1].entry
    start = trial.mark()
    trial.say(f"{event} while {last.state} {last.run_id} (line {last.seq})")
    if event == CUT:
        cuts.cut(trial, chance)
        took_s = cuts.resumed_s(trial, last.boot_id, start)
    else:
        power.meter(trial.scene.layout, plugged=False)
        time.sleep(UNPLUGGED_S)
        power.meter(trial.scene.layout, plugged=True)
        took_s = trial.wait_resumed("the meter was back", 1200)
    outcome.struck(last.state)
    outcome.resumed_s.append(took_s)
    trial.say(f"at work again after {took_s:.1f} s")


def night(scene: Scene, suite_dir: Path, seed: int) -> Outcome:
    """Run the suite, inject the faults, judge the result."""
    chance = random.Random(f"overnight/{seed}/when")
    outcome = Outcome(NAME, wanted=4, suite=str(suite_dir))
    started = time.monotonic()
    with Trial(scene, NAME, suite_dir) as trial:
        trial.wait_state("running", limit_s=1200)
        plan = json.loads((suite_dir / "plan.json").read_text(encoding="utf-8"))
        for count, event in moments(seed, len(plan["runs"])):
            if not _reach(trial, count):
                break
            _happen(trial, event, chance, outcome)
        trial.finish(END_LIMIT_S)
        outcome.took_s = round(time.monotonic() - started, 1)
        outcome.judgement = trial.judge(cuts.WENT_DOWN, away.SILENT)
        for command in ("verify", "summary"):
            result = scene.python("controller", command, str(suite_dir))
            trial.say(f"{command}, status {result.returncode}:\n{result.stdout}{result.stderr}")
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if no run was lost or false, `verify` passes and the report shows every incident."""
    parser = lab_parser("validation.faults.overnight", __doc__, PLACE)
    parser.add_argument("--suite", default="overnight")
    parser.add_argument("--scale", default="lab")
    parser.add_argument("--blocks", type=int, help="instead of the suite's own number")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "data" / "suites")
    options = parser.parse_args(arguments)
    scene = Scene.at(options.dir.absolute())

    def work() -> int:
        scene.ready()
        suite_dir = scene.plan(
            options.suite, options.scale, options.seed, options.out, options.blocks
        )
        outcome = night(scene, suite_dir, options.seed)
        write_outcome(scene.folder / NAME, outcome)
        scene.say(f"{NAME}: {outcome.took_s / 60:.1f} min\n{results.matrix([outcome])}")
        judged = outcome.judgement
        sound = judged["verified"] and judged["named"] and not (judged["lost"] or judged["false"])
        return 0 if sound and outcome.times == outcome.wanted else 1

    return scene.run(work, options.keep_lab, options.out)


if __name__ == "__main__":
    sys.exit(main())
