"""Waits of the agent before it continues, each noted once in the journal: `waiting`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from agent.storage import devices, secrets
from agent.storage.secrets import Secrets
from agent.system import lock
from agent.system.notify import Watchdog
from contract.errors import AgentError
from contract.journal import Journal
from contract.plan import Disk

T = TypeVar("T")

POLL_S = 0.2
# A disk or a counter that is not there after so long will not come by itself.
PATIENCE_S = 3600.0
# Less is not enough for a run's folder and the journal's lines until the checks look closer.
LEAST_FREE_BYTES = 4 * 2**20


class NotYetError(AgentError):
    """A condition that is waited for is not met yet; the text changes only with the reason."""


class Waits:
    """Waits that the journal records and that keep the watchdog quiet."""

    def __init__(
        self, journal: Journal, watchdog: Watchdog, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._journal = journal
        self._watchdog = watchdog
        self._sleep = sleep

    def until(
        self,
        cause: str,
        attempt: Callable[[], T],
        *,
        run_id: str = "",
        limit_s: float | None = None,
    ) -> T:
        """Return the result of `attempt` once it does not raise AgentError.

        Raises its last error after `limit_s`. The journal gets the cause and the error, once for
        each reason.
        """
        reported = ""
        end_s = None if limit_s is None else time.monotonic() + limit_s
        while True:
            try:
                return attempt()
            except AgentError as error:
                if end_s is not None and time.monotonic() > end_s:
                    raise
                reason = str(error)
            if reason != reported:
                self._journal.append("waiting", run_id, reason, cause)
                reported = reason
            self._watchdog.within(60)
            self._sleep(POLL_S)

    def for_secrets(self, path: Path) -> Secrets:
        """Return the secrets, however long it takes until the controller has placed them again."""
        return self.until("secrets", lambda: secrets.load(path))

    def for_disks(self, disks: Iterable[Disk], run_id: str = "") -> None:
        """Wait for all disks of the plan; raises NotYetError once one was missing for an hour."""
        paths = [disk.by_id for disk in disks]

        def look() -> None:
            if missing := [path for path in paths if devices.kernel_name(path) is None]:
                raise NotYetError("not-plugged-in", missing=", ".join(missing))

        self.until("disks", look, run_id=run_id, limit_s=PATIENCE_S)

    def for_controller(self, run_id: str, lease: Path = lock.HOLD) -> None:
        """Wait until no lease holds the agent any more."""

        def look() -> None:
            if reason := lock.reason(lease):
                raise NotYetError(reason)

        self.until("held", look, run_id=run_id)

    def for_room(self, folder: Path, run_id: str = "") -> None:
        """Wait for room to continue at all; raises NotYetError after an hour without."""

        def look() -> None:
            if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
                raise NotYetError("disk-full", folder=folder, least_free_mib=LEAST_FREE_BYTES >> 20)

        self.until("room", look, run_id=run_id, limit_s=PATIENCE_S)
