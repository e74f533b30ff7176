"""What is told of a link that drops: once when it is gone, now and then, and when it is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from controller import progress

# A link that is back sooner is not worth a word.
PATIENCE_S = 8.0
AGAIN_S = 3600.0


class Word:
    """Keeps count of when the target was last heard."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._since_s: float | None = None
        self._since_wall = ""
        self._reason = ""
        self._due_s = 0.0
        self._told = False

    @property
    def gone(self) -> bool:
        """Whether the target cannot be heard now."""
        return self._since_s is not None

    def up(self) -> None:
        """The link is there."""
        if self._since_s is not None and self._told:
            away = progress.minutes(time.monotonic() - self._since_s)
            self._note(f"the target answers again, after {away}")
        self._since_s, self._told = None, False

    def dropped(self, reason: str) -> None:
        """It is not, for a reason."""
        self._reason = reason
        if self._since_s is None:
            self._since_s = time.monotonic()
            self._since_wall = f"{datetime.now():%H:%M}"
            self._due_s = self._since_s + PATIENCE_S

    def tick(self) -> None:
        """Tell what is due."""
        if self._since_s is None or time.monotonic() < self._due_s:
            return
        still = "still " if self._told else ""
        self._note(
            f"{still}no word from the target since {self._since_wall} ({self._reason}); "
            "the agent goes on by itself"
        )
        self._told = True
        self._due_s = time.monotonic() + AGAIN_S
