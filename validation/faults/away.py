"""Interruptions of the target's network and of the meter's cable."""

from __future__ import annotations

import time

from lab import power
from validation.faults.trial import Fault, Outcome, Small, Trial

AWAY_S, QUICK_AWAY_S = 600.0, 60.0
COST_S = 30.0
HELD = "held"
SILENT = ("silences",)


def _network(trial: Trial, outcome: Outcome) -> None:
    """Disconnect the network; the suite is long enough to see the agent continue."""
    outcome.struck(trial.wait_state("running").entry.state)
    power.network(trial.scene.layout, plugged=False)
    try:
        trial.say("the network is away")
        start = len(trial.observer.lines())
        trial.pause(QUICK_AWAY_S if outcome.quick else AWAY_S)
    finally:
        power.network(trial.scene.layout, plugged=True)
    back_s = time.monotonic()
    line = trial.wait(lambda line: line.received_s > back_s, "line", start=start)
    outcome.resumed_s = [line.received_s - back_s]
    time.sleep(5)  # all that came meanwhile
    _note_finished(trial, outcome, start)


def _meter(trial: Trial, outcome: Outcome) -> None:
    """Pull the meter's cable: no unmetered run may count; the agent must wait, not measure."""
    outcome.struck(trial.wait_state("running").entry.state)
    power.meter(trial.scene.layout, plugged=False)
    try:
        trial.say("the meter's cable is pulled")
        start = len(trial.observer.lines())
        # It may wait for other things as well, and then continue with a run.
        trial.wait(
            lambda line: line.entry.state == "waiting" and line.entry.cause == HELD,
            "wait for the meter",
        )
        outcome.extra = [("agent's cost while it waits", _cost_percent(trial), "% CPU", 0.1)]
        trial.pause(QUICK_AWAY_S if outcome.quick else AWAY_S)
    finally:
        power.meter(trial.scene.layout, plugged=True)
    _note_finished(trial, outcome, start)
    outcome.resumed_s = [trial.wait_resumed("the meter was back")]


def _note_finished(trial: Trial, outcome: Outcome, start: int) -> None:
    outcome.note = f"{trial.finished(start)} runs finished while it was away"
    trial.say(outcome.note)


def _cost_percent(trial: Trial) -> float:
    """Return the agent's share of one CPU while it waits, by the kernel's account of its unit."""
    command = (
        f"systemctl show --property=CPUUsageNSec --value {trial.unit}; cut -d' ' -f1 /proc/uptime"
    )
    before = trial.scene.ssh(command).split()
    trial.pause(COST_S)
    after = trial.scene.ssh(command).split()
    spent_s = (int(after[0]) - int(before[0])) / 1e9
    return round(100 * spent_s / (float(after[1]) - float(before[1])), 3)


NETWORK = Fault(
    "network-away",
    "takes the target's network away for ten minutes, as a pulled cable does",
    "the cable is put back",
    _network,
    ("unlinked",),
    small=Small(blocks=12),
    quick=Small(blocks=4),
    events=("target-lost",),
)
METER = Fault(
    "meter-away",
    "pulls the meter's cable for ten minutes",
    "the cable is put back",
    _meter,
    SILENT,
    quick=Small(),
    events=("meter-silent",),
)
