"""Has the guest's agent die at chosen lines of its journal: a drop-in for its unit, and orders."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.errors import LabError
from validation.scene import Scene

DOOMED = Path(__file__).with_name("guest") / "doomed.py"
# The launcher lies in memory: a machine that boots anew has the agent as it is. Its record does
# not, for it must outlive what it tells of.
LAUNCHER = "/run/fde-faults/doomed.py"
ORDERS = "/run/fde-faults/orders.json"
RECORD = "/var/lib/fde-testbed/fault-kills.jsonl"
DROP_IN = "/run/systemd/system/fde-agent@.service.d/doomed.conf"
MODULE = "-m agent "


def order(scene: Scene, orders: Sequence[tuple[str, str]]) -> None:
    """From the next start of the agent on: die at these (state, moment)s."""
    scene.put(DOOMED, LAUNCHER)
    unit = scene.ssh("cat '/etc/systemd/system/fde-agent@.service'")
    (command,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    if MODULE not in command:
        raise LabError(f"the agent is not started as it was: {command}")
    doomed = command.replace(MODULE, f"{LAUNCHER} {ORDERS} {RECORD} ")
    drop_in = f"[Service]\nExecStart=\n{doomed}\n"
    said = json.dumps([list(pair) for pair in orders])
    scene.ssh(
        f"rm -f {RECORD}; mkdir -p $(dirname {DROP_IN}); printf %s {shlex.quote(said)} > {ORDERS}; "
        f"printf %s {shlex.quote(drop_in)} > {DROP_IN}; systemctl daemon-reload"
    )


def relieve(scene: Scene) -> None:
    """The agent is itself again."""
    scene.ssh(f"rm -f {DROP_IN} {RECORD}; rm -rf /run/fde-faults; systemctl daemon-reload")


def done(scene: Scene) -> list[dict[str, Any]]:
    """The kills so far, in their order: the journal's entry, and the moment."""
    text = scene.ssh(f"cat {RECORD} 2>/dev/null || true")
    return [json.loads(line) for line in text.splitlines()]
