"""SIGKILL at every line of the journal: for the agent, the recorder, the controller.

A suite is brought to the states that do not come by themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from contract.errors import LabError
from validation.faults.observer import Line
from validation.faults.trial import AT_WORK, Fault, Outcome, Small, Trial
from validation.scene import Scene

MOMENTS = ("before", "half", "after")
END_LIMIT_S = 1800.0
RECORDER_LIMIT_S = 60.0
LOOK_S = 8.0  # an SSH key exchange is work for an emulated target, which waits for it to rest
# Of these, one line is enough to continue with; the agent is made to write another for each kill.
FORCED = ("waiting", "suite-failed")
# In the order in which a suite can be led through them.
STATES = (
    *("suite-started", "switching", "running", "proving", "finished", "waiting", "void"),
    *("suite-failed", "suite-finished"),
)
HOLD_S = 20
KILLED_AGENT = Path(__file__).with_name("guest") / "killed_agent.py"
# The launcher lies in memory: a machine that boots again has the agent as it is. Its record does
# not, for it must outlive what it tells of.
LAUNCHER = "/run/fde-faults/killed_agent.py"
ORDERS = "/run/fde-faults/orders.json"
RECORD = "/var/lib/fde-testbed/fault-kills.jsonl"
DROP_IN = "/run/systemd/system/fde-agent@.service.d/killed-agent.conf"
MODULE = "-m agent "


def hold(trial: Trial, seconds: float) -> None:
    """Make the next run wait this long."""
    trial.scene.agent("hold", "--reason", "a trial of the lab", "--for", f"{seconds:g}")


def kill_agent(trial: Trial, name: str) -> None:
    """Send the agent itself a signal; systemd ends its programs."""
    trial.scene.ssh(f"systemctl kill --kill-whom=main -s {name} {trial.unit}", check=False)


def until(trial: Trial, state: str) -> Line:
    """Return the next line of this state, provoking it if necessary."""
    trial.mark()
    if state == "waiting":
        hold(trial, HOLD_S)
    elif state in ("void", "suite-failed"):
        # Killed in a run, the agent closes it as void when it starts again.
        trial.wait_state("running")
        with contextlib.suppress(LabError):
            kill_agent(trial, "KILL" if state == "void" else "TERM")
    return trial.wait_state(state)


def order(scene: Scene, orders: Sequence[tuple[str, str]]) -> None:
    """Make the agent die at these (state, moment)s from its next start on."""
    scene.put(KILLED_AGENT, LAUNCHER)
    unit = scene.ssh("cat '/etc/systemd/system/fde-agent@.service'")
    (command,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    if MODULE not in command:
        raise LabError(f"the agent is not started as it was: {command}")
    command_line = command.replace(MODULE, f"{LAUNCHER} {ORDERS} {RECORD} ")
    drop_in = f"[Service]\nExecStart=\n{command_line}\n"
    scene.ssh(
        f"rm -f {RECORD}; mkdir -p $(dirname {DROP_IN}); "
        f"printf %s {shlex.quote(json.dumps(orders))} > {ORDERS}; "
        f"printf %s {shlex.quote(drop_in)} > {DROP_IN}; systemctl daemon-reload"
    )


def clear(scene: Scene) -> None:
    """Put the agent's own command back."""
    scene.ssh(f"rm -f {DROP_IN} {RECORD}; rm -rf /run/fde-faults; systemctl daemon-reload")


def read_kills(scene: Scene) -> list[dict[str, Any]]:
    """Return the kills so far, in order: the journal's entry, and the moment."""
    text = scene.ssh(f"cat {RECORD} 2>/dev/null || true")
    return [json.loads(line) for line in text.splitlines()]


def _agent(trial: Trial, outcome: Outcome) -> None:
    """Kill the agent at three moments of each of the nine states, within one suite."""
    moments = ("after",) if outcome.quick else MOMENTS
    orders = [(state, moment) for state in STATES for moment in moments]
    natural = [pair for pair in orders if pair[0] not in FORCED]
    outcome.wanted = outcome.wanted_reached = len(orders)
    order(trial.scene, orders)
    try:
        hold(trial, 1800)
        _forced(trial, "waiting", len(moments))
        trial.scene.agent("hold", "--end")
        trial.mark()
        trial.wait_state("finished")
        _forced(trial, "suite-failed", len(moments))
        _until_all(trial, natural)
        trial.finish()
        kills = read_kills(trial.scene)
    finally:
        with contextlib.suppress(LabError):
            clear(trial.scene)
    for kill in kills:
        outcome.struck(f"{kill['state']}/{kill['moment']}")
    outcome.resumed_s = _resumed(trial, kills)


def _forced(trial: Trial, state: str, count: int) -> None:
    """Lead the agent to this state until it has died there `count` times."""
    deadline = time.monotonic() + END_LIMIT_S
    while sum(kill["state"] == state for kill in read_kills(trial.scene)) < count:
        if time.monotonic() > deadline:
            raise LabError(f"the agent does not die at {state}: {trial.last()}")
        trial.keep_going()
        if state == "suite-failed":
            trial.mark()
            trial.wait_state("running")
            kill_agent(trial, "TERM")
        time.sleep(LOOK_S)


def _until_all(trial: Trial, orders: list[tuple[str, str]]) -> None:
    """Wait for all unprovoked kills, the last ones at the suite's end."""
    deadline = time.monotonic() + END_LIMIT_S
    missing_orders = set(orders)
    while missing := missing_orders - {(k["state"], k["moment"]) for k in read_kills(trial.scene)}:
        if time.monotonic() > deadline or (trial.sealed and not trial.controller.running()):
            raise LabError(f"not reached: {sorted(missing)}; {trial.last()}")
        trial.keep_going()
        time.sleep(LOOK_S)


def _resumed(trial: Trial, kills: list[dict[str, Any]]) -> list[float]:
    """Return the target's seconds from each kill to the next line of work, unless killed again."""
    lines = [line.entry for line in trial.observer.lines()]
    seconds = []
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
            seconds.append((min(at_work) - kill["t_mono_ns"]) / 1e9)
    return seconds


def _at_each_state(kill: Callable[[Trial], bool], trial: Trial, outcome: Outcome) -> None:
    """Lead a suite through all states and kill a process as soon as each is seen."""
    states = ("running", "finished", "suite-finished") if outcome.quick else STATES
    outcome.wanted = outcome.wanted_reached = len(states)
    trial.keep_going()
    for state in states:
        line = until(trial, state)
        if kill(trial):
            outcome.struck(state)
            trial.say(f"killed at {state} (line {line.entry.seq})")


def _kill_controller(trial: Trial) -> bool:
    """Kill the session and start it again at once, as a watching user would."""
    if not trial.controller.running():
        return False
    trial.controller.kill()
    trial.keep_going()
    return True


def _kill_recorder(trial: Trial) -> bool:
    """Kill the recorder; wait until another one works, or none is needed any more."""
    deadline = time.monotonic() + RECORDER_LIMIT_S
    while not (before := trial.controller.recorders()):
        if time.monotonic() > deadline or trial.sealed:
            return False
        trial.keep_going()
        time.sleep(0.1)
    for pid in before:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while not trial.controller.recorders() - before:
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
    ("restarts",),
    small=Small(blocks=4),
    quick=Small(),
    events=("interrupted",),
    causes=("void",),
)
RECORDER = Fault(
    "recorder-kill",
    "kills the meter's recorder at every state of the journal",
    "the session starts another one",
    partial(_at_each_state, _kill_recorder),
    ("silences",),
    small=Small(blocks=4),
    quick=Small(),
)
CONTROLLER = Fault(
    "controller-kill",
    "kills the controller at every state of the journal",
    "fde resume",
    partial(_at_each_state, _kill_controller),
    ("killed",),
    small=Small(blocks=4),
    quick=Small(),
    events=("started",),
)
