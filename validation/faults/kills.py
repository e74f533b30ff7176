"""SIGKILL at every line of the journal: of the agent, of the recorder, of the controller."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from contract.errors import LabError
from validation.faults import provoke
from validation.faults.provoke import STATES
from validation.faults.trial import AT_WORK, Fault, Outcome, Small, Trial

MOMENTS = ("before", "half", "after")
END_LIMIT_S = 1800.0
RECORDER_LIMIT_S = 60.0
LOOK_S = 8.0  # an SSH key exchange is work for an emulated target, which waits for it to rest
# Of these, one line is enough to continue with; the agent is made to write another for each kill.
FORCED = ("waiting", "suite-failed")


def _agent(trial: Trial, outcome: Outcome) -> None:
    """Three moments at each of the nine states, one after the other, within one suite."""
    moments = ("after",) if outcome.quick else MOMENTS
    orders = [(state, moment) for state in STATES for moment in moments]
    natural = [pair for pair in orders if pair[0] not in FORCED]
    outcome.wanted = outcome.wanted_reached = len(orders)
    provoke.order(trial.scene, orders)
    try:
        provoke.hold(trial, 1800)
        _forced(trial, "waiting", len(moments))
        provoke.let_go(trial)
        trial.mark()
        trial.wait_state("finished")
        _forced(trial, "suite-failed", len(moments))
        _until_all(trial, natural)
        trial.finish()
        kills = provoke.done(trial.scene)
    finally:
        with contextlib.suppress(LabError):
            provoke.clear(trial.scene)
    for kill in kills:
        outcome.struck(f"{kill['state']}/{kill['moment']}")
    outcome.resumed_s = _resumed(trial, kills)


def _forced(trial: Trial, state: str, count: int) -> None:
    """Until the agent has died so often at this state, led there where it must be led."""
    deadline = time.monotonic() + END_LIMIT_S
    while sum(kill["state"] == state for kill in provoke.done(trial.scene)) < count:
        if time.monotonic() > deadline:
            raise LabError(f"the agent does not die at {state}: {trial.last()}")
        trial.keep_going()
        if state == "suite-failed":
            trial.mark()
            trial.wait_state("running")
            provoke.kill_agent(trial, "TERM")
        time.sleep(LOOK_S)


def _until_all(trial: Trial, orders: list[tuple[str, str]]) -> None:
    """Until all kills are done that come by themselves, the last ones at the suite's end."""
    deadline = time.monotonic() + END_LIMIT_S
    wanted = set(orders)
    while missing := wanted - {(k["state"], k["moment"]) for k in provoke.done(trial.scene)}:
        if time.monotonic() > deadline or (trial.sealed and not trial.controller.running()):
            raise LabError(f"not reached: {sorted(missing)}; {trial.last()}")
        trial.keep_going()
        time.sleep(LOOK_S)


def _resumed(trial: Trial, kills: list[dict[str, Any]]) -> list[float]:
    """From each kill to the next line of work, in the target's own time; another kill in between
    makes it no figure."""
    lines = [line.entry for line in trial.observer.lines()]
    found = []
    ends = [kill["t_mono_ns"] for kill in kills[1:]] + [float("inf")]
    for kill, end_ns in zip(kills, ends, strict=True):
        at_work = [
            entry.t_mono_ns
            for entry in lines
            if entry.state in AT_WORK
            and entry.boot_id == kill["boot_id"]
            and kill["t_mono_ns"] < entry.t_mono_ns <= end_ns
        ]
        # What follows the suite's end is a repetition that the controller asks for, when it does.
        if at_work and kill["state"] != "suite-finished":
            found.append((min(at_work) - kill["t_mono_ns"]) / 1e9)
    return found


def _at_each_state(kill: Callable[[Trial], bool], trial: Trial, outcome: Outcome) -> None:
    """Lead a suite through all states and kill a process as soon as each is seen."""
    states = ("running", "finished", "suite-finished") if outcome.quick else STATES
    outcome.wanted = outcome.wanted_reached = len(states)
    trial.keep_going()
    for state in states:
        line = provoke.until(trial, state)
        if kill(trial):
            outcome.struck(state)
            trial.say(f"killed at {state} (line {line.entry.seq})")


def _kill_controller(trial: Trial) -> bool:
    """Started again at once, as by a person who watches."""
    if not trial.controller.running():
        return False
    trial.controller.kill()
    trial.keep_going()
    return True


def _kill_recorder(trial: Trial) -> bool:
    """And wait until another one is at work, or none is needed any more."""
    deadline = time.monotonic() + RECORDER_LIMIT_S
    while not (before := trial.controller.recorders()):
        if time.monotonic() > deadline or trial.sealed:
            return False
        trial.keep_going()
        time.sleep(0.1)
    for pid in before:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while not set(trial.controller.recorders()) - set(before):
        if trial.sealed or not trial.controller.running():
            break
        if time.monotonic() > deadline:
            raise LabError(f"no recorder came back in {RECORDER_LIMIT_S:.0f} s")
        time.sleep(0.1)
    return True


AGENT = Fault(
    "agent-kill",
    "kills the agent at every line of its journal: before it, within it, after it",
    "systemd starts it again",
    _agent,
    r"agent was started again in the same boot",
    small=Small(blocks=4),
    quick=Small(),
)
RECORDER = Fault(
    "recorder-kill",
    "kills the meter's recorder at every state of the journal",
    "the session starts another one",
    partial(_at_each_state, _kill_recorder),
    r"meter0 fell silent",
    small=Small(blocks=4),
    quick=Small(),
)
CONTROLLER = Fault(
    "controller-kill",
    "kills the controller at every state of the journal",
    "make resume",
    partial(_at_each_state, _kill_controller),
    r"session of the controller continued",
    small=Small(blocks=4),
    quick=Small(),
)
