"""The agent held back between runs while the controller cannot record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

LEASE_S = 90.0
RENEW_S = 30.0
RETRY_S = 2.0
POLL_S = 1.0
# A reason is one when it has stood so long (a recorder is started again sooner), and gone when it
# has been gone so long.
SETTLE_S = 3.0


class Lease(Protocol):
    """Who holds the agent; each returns whether the target was reached."""

    def hold(self, reason: str, seconds: float) -> bool: ...
    def let_go(self) -> bool: ...


class Hold:
    """A context in which the agent is held as long as `reason()` gives a sentence.

    It works in a separate thread: asking the target may take long.
    """

    def __init__(
        self, lease: Lease, reason: Callable[[], str], note: Callable[[str], None]
    ) -> None:
        self._lease = lease
        self._reason = reason
        self._note = note
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._noted = ""
        self._held = False
        self._due_s = 0.0
        self._since_s: float | None = None  # the reason has come, or gone

    def __enter__(self) -> Hold:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._held:
            self._lease.let_go()

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            reason, now_s = self._reason(), time.monotonic()
            if bool(reason) == bool(self._noted):
                self._since_s = None
            else:  # the change must have lasted
                self._since_s = self._since_s or now_s
                if now_s - self._since_s < SETTLE_S:
                    continue
            if reason:
                self._keep(reason)
            elif self._noted and not (self._held and not self._lease.let_go()):
                # Should the target not answer, the hold runs out by itself.
                self._note("fixed: runs start again")
                self._held, self._noted = False, ""

    def _keep(self, reason: str) -> None:
        if reason != self._noted:
            self._noted = reason
            self._note(f"{reason}: no run is begun until that is fixed")
            self._due_s = 0.0
        if time.monotonic() >= self._due_s:
            held = self._lease.hold(reason, LEASE_S)
            self._held = self._held or held
            self._due_s = time.monotonic() + (RENEW_S if held else RETRY_S)
