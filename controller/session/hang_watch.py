"""Report a target that is silent; switch one that hangs off and on, if its inventory allows it.

A mark in the user's state folder records that the target may be off. It is written before the
target is switched off and removed once it answers, to this session or a later one of any suite. A
target that answers from the same boot had power throughout: another outlet was switched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from contract import strict_json
from contract.documents import HangCause, PowerLine
from contract.errors import ControllerError
from contract.files import append_line, write
from contract.journal import boot_id
from contract.plan import Plan, PowerSwitch
from controller.session.progress_text import minutes
from controller.session.status import Board
from controller.targets.power_return import (
    NO_ANSWER,
    RETRY_S,
    await_answer,
    hold_mark,
    off_mark,
    switch_on,
)
from instrumentation import power_switch
from instrumentation.clock import monotonic_ns
from instrumentation.power_switch import PowerError

FILE = "power.jsonl"
# The agent's own watchdog ends a step that hangs within its run's limit and this time.
STEP_S = 900.0
SAME_BOOT = (
    "the target was not switched off: it answers from the same boot as before. "
    "Check that fde_power switches its outlet"
)


@dataclass
class HangWatch:
    """Switches a target off and on once per hang, as its inventory allows.

    `ask_boot` returns the id of the boot from which the target answers, empty without an answer;
    `boot` is the last one that is known.
    """

    plan: Plan
    switch: PowerSwitch | None
    suite_dir: Path
    board: Board
    ask_boot: Callable[[], str]
    boot: str
    _tried: bool = False  # in this hang
    _thread: threading.Thread | None = None
    _ending: threading.Event = field(default_factory=threading.Event)

    def observe(self, lost_s: float, working_s: float = 0.0) -> None:
        """Report or end a hang, by how long the target was silent and its run had no new line."""
        silent = f"the target has been silent for {minutes(lost_s)}"
        self.board.alarm("target-lost", silent if lost_s else "")
        stuck_after_s = (self.plan.run_limit_s or float("inf")) + STEP_S
        hung_s = max(lost_s, working_s - stuck_after_s)
        self._tried = self._tried and hung_s > 0
        if self.switch is None or self._tried or hung_s < self.switch.hang_s:
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._tried = True
        hangs = f"the target has been hanging for {minutes(hung_s)}"
        if sum(1 for _ in strict_json.lines(PowerLine, self.suite_dir / FILE)) >= self.switch.most:
            self.board.warn(f"{hangs}; all {self.switch.most} power cycles have been tried")
            return
        cause: HangCause = "lost" if hung_s == lost_s else "stuck"
        line = PowerLine(monotonic_ns(), boot_id(), cause, round(hung_s, 1))
        try:
            append_line(self.suite_dir / FILE, asdict(line))
            off_mark(self.plan.host).parent.mkdir(parents=True, exist_ok=True)
            write(off_mark(self.plan.host), [b""])
            mark = hold_mark(self.plan.host)
        except (OSError, ControllerError) as error:
            self.board.warn(f"{hangs}; its power is left on: {error}")
            return
        self.board.announce("power-cycled", f"{hangs}: switching it off and on")
        self._thread = threading.Thread(target=self._switch_off_and_on, args=(self.switch, mark))
        self._thread.start()

    def close(self) -> None:
        """End after one more attempt to switch the target on; the next session continues."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _switch_off_and_on(self, switch: PowerSwitch, mark: IO[bytes]) -> None:
        old_boot = self.boot

        def is_over(failure: str) -> bool:
            self.board.alarm("target-off", failure)
            self.board.warn(failure)
            self._ending.wait(RETRY_S)
            return self._ending.is_set()

        with mark:
            try:
                power_switch.turn(switch.argv, on=False)
            except PowerError as error:
                self.board.announce("power-cycled", str(error))
            self._ending.wait(switch.off_s)
            if not switch_on(switch, is_over):
                return
            new_boot = ""

            def reached() -> bool:
                nonlocal new_boot
                new_boot = self.ask_boot()
                return new_boot != ""

            while not await_answer(reached, self._ending.is_set):
                if is_over(f"the target may be OFF: {NO_ANSWER}"):
                    return
            off_mark(self.plan.host).unlink(missing_ok=True)
            self.board.alarm("target-off", "")
            if new_boot == old_boot:
                self.board.announce("power-cycled", SAME_BOOT)
            else:
                self.board.note("the target has power again")
