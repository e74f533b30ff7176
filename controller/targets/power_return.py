"""Switching a target back on that an earlier session left without power."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from contract.errors import ControllerError
from contract.places import state_folder
from contract.plan import PowerSwitch, TargetDocument
from instrumentation import power_switch
from instrumentation.power_switch import PowerError

BOOT_S = 600.0
RETRY_S = 10.0
NO_ANSWER = f"its switch reports on, and it has not answered for {BOOT_S / 60:g} min"


def off_mark(host: str) -> Path:
    """Return the path of the file that marks a host as switched off.

    Raises ControllerError if this user has no home.
    """
    return state_folder() / "off" / host


def is_left_off(host: str) -> bool:
    """Return whether this user switched a host off and did not switch it on again."""
    try:
        return off_mark(host).is_file()
    except ControllerError:  # without a home nothing is switched off
        return False


def hold_mark(host: str) -> IO[bytes]:
    """Lock a host's mark until the file is closed, so that only one process switches the host.

    Raises BlockingIOError if another process holds it, FileNotFoundError without a mark.
    """
    mark = off_mark(host).open("rb")
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        mark.close()
        raise
    return mark


def return_power(
    target: TargetDocument,
    reached: Callable[[], bool],
    say: Callable[[str], None],
    *,
    report: Callable[[str], None] = lambda _: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Switch a target on that any session left off, and wait until it answers.

    A running session that holds the mark switches it itself; a target that answers only loses its
    mark. `report` is called with each new failure. Raises ControllerError if the inventory names
    no switch, if the target does not answer, and when `is_stopped` is true after a failure.
    """
    if not is_left_off(target.host):
        return
    try:
        mark = hold_mark(target.host)
    except (BlockingIOError, FileNotFoundError):
        return
    with mark:
        if reached():
            off_mark(target.host).unlink(missing_ok=True)
            return
        say(f"{target.host} may be OFF since an earlier session: switching it on")
        if target.power is None:
            raise ControllerError("target-off", reason="the inventory has no fde_power any more")
        messages: list[str] = []

        def is_over(failure: str) -> bool:
            if failure not in messages:
                messages.append(failure)
                say(failure)
                report(failure)
            if is_stopped():
                raise ControllerError("target-off", reason=failure.rstrip("."))
            time.sleep(RETRY_S)
            return reached()

        if switch_on(target.power, is_over) and not await_answer(reached):
            raise ControllerError("target-off", reason=NO_ANSWER)
        off_mark(target.host).unlink(missing_ok=True)
        say("the target has power again")


def switch_on(switch: PowerSwitch, is_over: Callable[[str], bool]) -> bool:
    """Switch a target on, trying again after each failure; return whether that succeeded.

    `is_over` is called with the reason of each failure, waits, and returns whether to give up.
    """
    while True:
        try:
            power_switch.turn(switch.argv, on=True)
        except PowerError as error:
            if is_over(str(error)):
                return False
        else:
            return True


def await_answer(reached: Callable[[], bool], is_over: Callable[[], bool] = lambda: False) -> bool:
    """Wait for the answer that alone confirms a target's power; return whether it came."""
    until_s = time.monotonic() + BOOT_S
    while not (answered := reached()) and time.monotonic() < until_s and not is_over():
        time.sleep(1)
    return answered
