"""Hold the agent back between runs while the controller cannot record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

LEASE_S = 90.0
RENEW_S = 30.0
RETRY_S = 2.0
POLL_S = 1.0
SETTLE_S = 3.0  # a change must last that long: a recorder that died is started again sooner


class Lease(Protocol):
    """What holds the agent; both return whether the target was reached."""

    def hold(self, reason: str, seconds: float) -> bool: ...
    def let_go(self) -> bool: ...


@dataclass
class Hold:
    """A context in which the agent is held as long as `reason()` returns a sentence.

    A separate thread does the work, because asking the target may take long.
    """

    lease: Lease
    reason: Callable[[], str]
    note: Callable[[str], None]
    _held: bool = False

    def __enter__(self) -> Hold:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._held:
            self.lease.let_go()

    def _run(self) -> None:
        noted_reason = ""
        due_s = 0.0
        changed_s: float | None = None  # since when there is a reason, or none any more
        while not self._stop.wait(POLL_S):
            reason = self.reason()
            if bool(reason) == bool(noted_reason):
                changed_s = None
            else:
                changed_s = changed_s or time.monotonic()
                if time.monotonic() - changed_s < SETTLE_S:
                    continue
            if reason and reason != noted_reason:
                noted_reason, due_s = reason, 0.0
                self.note(f"{reason}: no run is begun until that is fixed")
            if reason and time.monotonic() >= due_s:
                succeeded = self.lease.hold(reason, LEASE_S)
                self._held = self._held or succeeded
                due_s = time.monotonic() + (RENEW_S if succeeded else RETRY_S)
            elif not reason and noted_reason and not (self._held and not self.lease.let_go()):
                # If the target does not answer, the lease expires without us.
                self.note("fixed: runs start again")
                self._held, noted_reason = False, ""
