"""Brings a suite to states that do not come by themselves."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.errors import LabError
from validation.faults.observer import Line
from validation.faults.trial import Trial
from validation.scene import Scene

# In the order in which a suite can be led through them.
STATES = (
    *("suite-started", "switching", "running", "proving", "finished", "waiting", "void"),
    *("suite-failed", "suite-finished"),
)
HOLD_S = 20


def hold(trial: Trial, seconds: float) -> None:
    """The next run has to wait so long."""
    reason = "a trial of the lab"
    trial.scene.agent("hold", "--reason", reason, "--for", f"{seconds:g}")


def let_go(trial: Trial) -> None:
    trial.scene.agent("hold", "--end")


def kill_agent(trial: Trial, signal: str = "KILL") -> None:
    """A signal to the agent itself; its programs are systemd's business."""
    trial.scene.ssh(f"systemctl kill --kill-whom=main -s {signal} {trial.unit}", check=False)


def until(trial: Trial, state: str) -> Line:
    """The next line of this state, made to come where it does not come by itself."""
    trial.mark()
    if state == "waiting":
        hold(trial, HOLD_S)
    elif state in ("void", "suite-failed"):
        # Killed in a run, the agent closes it as void when it starts again.
        trial.wait_state("running")
        with contextlib.suppress(LabError):
            kill_agent(trial, "KILL" if state == "void" else "TERM")
    return trial.wait_state(state)


KILLED_AGENT = Path(__file__).with_name("guest") / "killed_agent.py"
# The launcher lies in memory: a machine that boots again has the agent as it is. Its record does
# not, for it must outlive what it tells of.
LAUNCHER = "/run/fde-faults/killed_agent.py"
ORDERS = "/run/fde-faults/orders.json"
RECORD = "/var/lib/fde-testbed/fault-kills.jsonl"
DROP_IN = "/run/systemd/system/fde-agent@.service.d/killed-agent.conf"
MODULE = "-m agent "


def order(scene: Scene, orders: Sequence[tuple[str, str]]) -> None:
    """From the next start of the agent on: die at these (state, moment)s."""
    scene.put(KILLED_AGENT, LAUNCHER)
    unit = scene.ssh("cat '/etc/systemd/system/fde-agent@.service'")
    (command,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    if MODULE not in command:
        raise LabError(f"the agent is not started as it was: {command}")
    command_line = command.replace(MODULE, f"{LAUNCHER} {ORDERS} {RECORD} ")
    drop_in = f"[Service]\nExecStart=\n{command_line}\n"
    quoted = shlex.quote(json.dumps([list(pair) for pair in orders]))
    scene.ssh(
        f"rm -f {RECORD}; mkdir -p $(dirname {DROP_IN}); printf %s {quoted} > {ORDERS}; "
        f"printf %s {shlex.quote(drop_in)} > {DROP_IN}; systemctl daemon-reload"
    )


def clear(scene: Scene) -> None:
    """Put the agent's own command back."""
    scene.ssh(f"rm -f {DROP_IN} {RECORD}; rm -rf /run/fde-faults; systemctl daemon-reload")


def done(scene: Scene) -> list[dict[str, Any]]:
    """The kills so far, in their order: the journal's entry, and the moment."""
    text = scene.ssh(f"cat {RECORD} 2>/dev/null || true")
    return [json.loads(line) for line in text.splitlines()]
