"""Brings a suite to states that do not come by themselves."""

from __future__ import annotations

import contextlib

from contract.errors import LabError
from validation.faults.observer import Line
from validation.faults.trial import Trial

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
