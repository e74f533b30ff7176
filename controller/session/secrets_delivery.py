"""Send the secrets to a target that lost them by a reboot."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from contract.errors import ControllerError
from contract.journal import Entry
from contract.plan import TargetDocument
from controller.targets import secrets

SECRETS = "secrets"
RETRY_S = 2.0
# The agent checks several times a second: if it still waits then, it has lost them again.
AGAIN_S = 20.0


@dataclass
class SecretsDelivery:
    """Places the secrets on the target whenever the agent waits for them."""

    target: TargetDocument
    note: Callable[[str], None]
    _due_s: float = 0.0
    _failure: str = ""

    def look(self, last: Entry | None) -> None:
        """Place the secrets if the journal's last line waits for them; note a failure once."""
        if last is None or last.state != "waiting" or last.cause != SECRETS:
            self._due_s = 0.0
            return
        if time.monotonic() < self._due_s:
            return
        try:
            changed = secrets.place(self.target)
        except ControllerError as error:
            if str(error) != self._failure:
                self.note(f"the secrets could not be placed: {error}")
            self._failure = str(error)
            self._due_s = time.monotonic() + RETRY_S
        else:
            self._failure = ""
            if changed:
                self.note("the target asked for the secrets, and has them again")
            self._due_s = time.monotonic() + AGAIN_S
