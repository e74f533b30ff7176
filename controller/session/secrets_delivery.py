"""The secrets brought to a target that lost them by a reboot."""

from __future__ import annotations

import time
from collections.abc import Callable

from contract.errors import ControllerError
from contract.journal import Entry
from contract.plan import TargetDocument
from controller.targets import secrets

SECRETS = "secrets"
RETRY_S = 2.0
# The agent looks several times a second: if it still waits so long after, they are gone again.
AGAIN_S = 20.0


class SecretsDelivery:
    """Looks at the journal's last line, and places the secrets when the agent waits for them."""

    def __init__(self, target: TargetDocument, note: Callable[[str], None]) -> None:
        self._target = target
        self._note = note
        self._due_s = 0.0
        self._failed = ""

    def look(self, last: Entry | None) -> None:
        """Place them if they are waited for; a failure is noted once and tried again."""
        if last is None or last.state != "waiting" or last.cause != SECRETS:
            self._due_s = 0.0
            return
        if time.monotonic() < self._due_s:
            return
        try:
            changed = secrets.place(self._target)
        except ControllerError as error:
            if str(error) != self._failed:
                self._note(f"the secrets could not be placed: {error}")
            self._failed = str(error)
            self._due_s = time.monotonic() + RETRY_S
        else:
            self._failed = ""
            if changed:
                self._note("the target asked for the secrets, and has them again")
            self._due_s = time.monotonic() + AGAIN_S
