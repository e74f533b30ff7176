"""Bytes of a meter that are not used up yet, each with the time at which it arrived."""

from __future__ import annotations


class Inbox:
    """`data` is what was added and not dropped yet.

    With `most_bytes` the oldest half goes once there are more: a foreign stream must not fill the
    memory of a driver that only looks for answers.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self.data = b""
        self._most_bytes = most_bytes
        self._arrivals: list[tuple[int, int]] = []  # (offset in data, time) of each read

    def __len__(self) -> int:
        return len(self.data)

    def add(self, data: bytes, t_ns: int) -> None:
        """Bytes that came in one read, the first at `t_ns`."""
        if data:
            self._arrivals.append((len(self.data), t_ns))
            self.data += data
        if self._most_bytes is not None and len(self.data) > self._most_bytes:
            self.drop(len(self.data) - self._most_bytes // 2)

    def arrival_ns(self, offset: int) -> int:
        """When the byte at `offset` came."""
        return next(t_ns for at, t_ns in reversed(self._arrivals) if at <= offset)

    def drop(self, count: int) -> None:
        """Forget the first bytes."""
        self.data = self.data[count:]
        moved = [(at - count, t_ns) for at, t_ns in self._arrivals]
        started = [arrival for arrival in moved if arrival[0] <= 0][-1:]
        self._arrivals = [(0, t_ns) for _, t_ns in started if self.data]
        self._arrivals += [arrival for arrival in moved if arrival[0] > 0]

    def clear(self) -> None:
        """Forget all bytes."""
        self.drop(len(self.data))
