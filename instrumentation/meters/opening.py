"""How a meter is made to send: requests one after the other, again after a silence."""

from __future__ import annotations

from collections.abc import Sequence


class Opening:
    """What to send so that a meter starts: requests one after the other, again after a silence."""

    def __init__(self, requests: Sequence[bytes], pause_s: float, silence_s: float) -> None:
        self._requests = requests
        self._pause_ns = round(pause_s * 1e9)
        self._silence_ns = round(silence_s * 1e9)
        self._next = 0
        self.due_ns: int | None = 0 if requests else None

    def request(self, t_ns: int) -> bytes:
        """What is due at `t_ns`; empty if nothing is."""
        if self.due_ns is None or t_ns < self.due_ns:
            return b""
        return self._requests[self._next]

    def asked(self, t_ns: int) -> None:
        """What was due was sent."""
        if self._requests:
            self._next = (self._next + 1) % len(self._requests)
            self.due_ns = t_ns + (self._pause_ns if self._next else self._silence_ns)

    def heard(self, t_ns: int) -> None:
        """A record came: nothing needs to be sent until there is a silence again."""
        if self._requests:
            self._next = 0
            self.due_ns = t_ns + self._silence_ns

    def again(self) -> None:
        """The meter has forgotten that it was started."""
        if self._requests:
            self._next = self.due_ns = 0
