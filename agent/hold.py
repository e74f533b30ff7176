"""A lease that keeps the agent from beginning the next run while the controller is not ready.

It lies in the target's memory and ends by itself, so that a controller that went away stops nobody.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from contract.errors import AgentError
from contract.files import write_json

HOLD = Path("/run/fde-testbed/hold.json")
LONGEST_S = 3600.0


class HoldError(AgentError):
    """A lease that nobody can keep."""


def take(reason: str, seconds: float, path: Path = HOLD) -> None:
    """Hold for `seconds` from now, in place of any lease before."""
    if not 0 < seconds <= LONGEST_S:
        raise HoldError(f"A hold lasts up to {LONGEST_S:g} s: renew it for longer.")
    path.parent.mkdir(parents=True, exist_ok=True)
    until_ns = time.monotonic_ns() + round(seconds * 1e9)
    write_json(path, {"reason": " ".join(reason.split()), "until_ns": until_ns})


def end(path: Path = HOLD) -> None:
    """Let go, whether or not there is a lease."""
    path.unlink(missing_ok=True)


def reason(path: Path = HOLD) -> str | None:
    """Why the next run is to wait; None without a lease that still runs.

    One that cannot be read, or ends later than any lease may, holds nobody.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        left_ns = int(document["until_ns"]) - time.monotonic_ns()
        said = str(document["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return said if 0 < left_ns <= LONGEST_S * 1e9 else None
