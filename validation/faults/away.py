"""What is away for a while and comes back: the target's network, the meter's cable."""

from __future__ import annotations

import time

from lab import power
from validation.faults.fault import Fault, TrialOptions
from validation.faults.planning import Small
from validation.faults.trial import AT_WORK, Outcome, Trial
from validation.scene import Scene

AWAY_S, QUICK_AWAY_S = 600.0, 60.0
END_LIMIT_S = 2400.0
COST_S = 30.0
HELD = "held"


def _away_s(wish: TrialOptions) -> float:
    return QUICK_AWAY_S if wish.quick else AWAY_S


def _network(scene: Scene, wish: TrialOptions) -> Outcome:
    """The agent continues by itself; the suite is long enough to see that."""
    outcome = Outcome("network-away", wanted=1, quick=wish.quick)
    blocks = 4 if wish.quick else 12
    with Trial.of(scene, "network-away", Small(blocks=blocks), seed=wish.seed) as trial:
        before = trial.wait_state("running").entry
        power.network(scene.layout, plugged=False)
        try:
            trial.say("the network is away")
            heard = len(trial.observer.lines())
            _pause(trial, _away_s(wish))
        finally:
            power.network(scene.layout, plugged=True)
        back_s = time.monotonic()
        outcome.times, outcome.reached = 1, [before.state]
        line = trial.wait(lambda line: line.heard_s > back_s, "line", start=heard)
        outcome.resumed_s = [line.heard_s - back_s]
        time.sleep(5)  # all that came meanwhile
        lines = trial.observer.lines(heard)
        alone = sum(line.entry.state == "finished" for line in lines)
        outcome.note = f"{alone} runs finished while it was away"
        trial.say(outcome.note)
        trial.finish(END_LIMIT_S)
        outcome.judgement = trial.judge([r"No link to the target"])
        outcome.suite = str(trial.suite_dir)
    return outcome


def _meter(scene: Scene, wish: TrialOptions) -> Outcome:
    """No run may count whose joules nobody has read; the agent is to wait, not to measure."""
    outcome = Outcome("meter-away", wanted=1, quick=wish.quick)
    with Trial.of(scene, "meter-away", Small(blocks=2), seed=wish.seed) as trial:
        before = trial.wait_state("running").entry
        power.meter(scene.layout, plugged=False)
        try:
            trial.say("the meter's cable is pulled")
            heard = len(trial.observer.lines())
            # It may wait for other things as well, and then continue with a run.
            trial.wait(
                lambda line: line.entry.state == "waiting" and line.entry.cause == HELD,
                "wait for the meter",
            )
            outcome.extra = [("agent's cost while it waits", _cost_percent(trial), "% CPU", 0.1)]
            _pause(trial, _away_s(wish))
        finally:
            power.meter(scene.layout, plugged=True)
        back_s = time.monotonic()
        outcome.times, outcome.reached = 1, [before.state]
        alone = sum(line.entry.state == "finished" for line in trial.observer.lines(heard))
        outcome.note = f"{alone} runs finished while it was away"
        trial.say(outcome.note)
        line = trial.wait(
            lambda line: line.heard_s > back_s and line.entry.state in AT_WORK,
            "line of work after the meter was back",
        )
        outcome.resumed_s = [line.heard_s - back_s]
        trial.finish(END_LIMIT_S)
        outcome.judgement = trial.judge([r"meter0 fell silent"])
        outcome.suite = str(trial.suite_dir)
    return outcome


def _cost_percent(trial: Trial) -> float:
    """Of one CPU, while the agent waits for half a minute; the kernel's own account of its unit."""
    asked = (
        f"systemctl show --property=CPUUsageNSec --value {trial.unit}; cut -d' ' -f1 /proc/uptime"
    )
    before = trial.scene.ssh(asked).split()
    _pause(trial, COST_S)
    after = trial.scene.ssh(asked).split()
    spent_s = (int(after[0]) - int(before[0])) / 1e9
    return round(100 * spent_s / (float(after[1]) - float(before[1])), 3)


def _pause(trial: Trial, seconds: float) -> None:
    """The suite continues meanwhile, with its controller kept alive as by a person."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        trial.keep_going()
        time.sleep(1)


NETWORK = Fault(
    "network-away",
    "takes the target's network away for ten minutes, as a pulled cable does",
    "the cable is put back",
    _network,
)
METER = Fault(
    "meter-away",
    "pulls the meter's cable for ten minutes",
    "the cable is put back",
    _meter,
)
