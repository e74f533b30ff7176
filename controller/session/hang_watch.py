"""A target that is silent is reported; one that hangs is switched off and on, where that is set."""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path

from contract import strict_json
from contract.documents import HangCause, PowerLine
from contract.files import append_line
from contract.journal import boot_id
from contract.plan import Plan, PowerSwitch
from contract.problem import ProblemError
from controller.session.progress_text import minutes
from controller.session.status import Board
from instrumentation.clock import monotonic_ns

FILE = "power.jsonl"
# Within this and its run's limit, the agent's own watchdog has ended a step that hangs.
STEP_S = 900.0


class HangWatch:
    """Switches a target off and on once a hang, as its inventory allows."""

    def __init__(
        self, plan: Plan, switch: PowerSwitch | None, suite_dir: Path, board: Board
    ) -> None:
        self._switch = switch
        self._stuck_after_s = (plan.run_limit_s or float("inf")) + STEP_S
        self._path = suite_dir / FILE
        self._board = board
        self._tried = False  # in this hang

    def observe(self, lost_s: float, working_s: float = 0.0) -> None:
        """Take note of how long the target was silent, and its run had no new line."""
        silent = f"the target has been silent for {minutes(lost_s)}"
        self._board.alarm("target-lost", silent if lost_s else "")
        hung_s = max(lost_s, working_s - self._stuck_after_s)
        self._tried = self._tried and hung_s > 0
        if self._switch is None or self._tried or hung_s < self._switch.hang_s:
            return
        self._tried = True
        hangs = f"the target has been hanging for {minutes(hung_s)}"
        if sum(1 for _ in strict_json.lines(PowerLine, self._path)) >= self._switch.most:
            self._board.warn(f"{hangs}; it was switched off and on {self._switch.most} times")
            return
        cause: HangCause = "lost" if hung_s == lost_s else "stuck"
        line = PowerLine(monotonic_ns(), boot_id(), cause, round(hung_s, 1))
        try:
            append_line(self._path, asdict(line))
        except OSError as error:
            self._board.warn(f"{hangs}; its power is left on: {FILE}: {error.strerror}")
            return
        self._board.announce("power-cycled", f"{hangs}: it is switched off and on")
        # No daemon: a session that ends meanwhile gives the target its power back first.
        threading.Thread(target=self._cycle, args=(self._switch,)).start()

    def _cycle(self, switch: PowerSwitch) -> None:
        from instrumentation import power_switch  # its libraries are not needed until now

        try:
            power_switch.cycle(switch)
        except (ProblemError, OSError) as error:
            failure = f"the target could not be switched off and on: {error}"
            self._board.announce("power-cycled", failure)
        else:
            self._board.note("the target has power again")
