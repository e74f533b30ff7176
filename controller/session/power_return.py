"""A target that an earlier session left without power gets it back before anything else."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from contract.errors import ControllerError
from contract.plan import PowerSwitch
from controller.session.ending import STOP
from controller.session.hang_watch import RETRY_S, give_back
from controller.session.messenger import Messenger
from controller.session.status import POWER_OFF

BOOT_S = 600.0


def return_power(
    suite_dir: Path,
    switch: PowerSwitch | None,
    reached: Callable[[], bool],
    messenger: Messenger,
    say: Callable[[str], None],
) -> None:
    """Switch a target on that was left off, for as long as it takes, and wait until it answers.

    Who switched it on by hand is noticed. Raises ControllerError where no switch is named, and on
    `fde stop`.
    """
    path = suite_dir / POWER_OFF
    if not path.exists():
        return
    if reached():
        path.unlink()
        return
    say("an earlier session left the target OFF: it is switched on")
    if switch is None:
        raise ControllerError("target-off", reason="the inventory has no fde_power any more")
    messages: list[str] = []

    def is_over(failure: str) -> bool:
        sentence = f"the target is still OFF: {failure}"
        if sentence not in messages:
            messages.append(sentence)
            say(sentence)
            messenger.send("target-off", sentence)
        if (suite_dir / STOP).exists():
            raise ControllerError("target-off", reason=failure)
        time.sleep(RETRY_S)
        return reached()

    give_back(switch, path, is_over)
    path.unlink(missing_ok=True)
    say("the target has power again; waiting until it answers")
    until_s = time.monotonic() + BOOT_S
    while not reached() and time.monotonic() < until_s:
        time.sleep(1)
