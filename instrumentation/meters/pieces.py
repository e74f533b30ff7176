"""For drivers of meters that send text: bytes with the time of their arrival, and how to start."""

from __future__ import annotations

from collections.abc import Sequence


class Pieces:
    """Bytes that are not read yet, and when each of them came."""

    def __init__(self) -> None:
        self.data = b""
        self._arrivals: list[tuple[int, int]] = []  # (offset in data, time) of each read

    def append(self, data: bytes, t_ns: int) -> None:
        """Bytes that came in one read, the first of them at `t_ns`."""
        self._arrivals.append((len(self.data), t_ns))
        self.data += data

    def time_ns(self, offset: int) -> int:
        """When the read came that brought the byte at `offset` of `data`."""
        return next(t_ns for at, t_ns in reversed(self._arrivals) if at <= offset)

    def drop(self, count: int) -> None:
        """Forget the first `count` bytes."""
        self.data = self.data[count:]
        before = [arrival for arrival in self._arrivals if arrival[0] <= count][-1:]
        after = [arrival for arrival in self._arrivals if arrival[0] > count]
        self._arrivals = [(max(0, at - count), t_ns) for at, t_ns in before + after]


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
