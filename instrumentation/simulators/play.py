"""A serial port that a simulator talks to: a pseudo-terminal that behaves like a USB adapter."""

from __future__ import annotations

import os
import pty
import select
import time
import tty
from pathlib import Path

_READ_BYTES = 4096
_NOBODY_PAUSE_S = 0.02


class SimulatedPort:
    """The meter's end of a pseudo-terminal; `link` becomes a symbolic link to the other end.

    While the other end is not open, and when its buffer is full, whole pieces of output are
    dropped and counted, as by an adapter that is not read. `send` and `receive` never block.
    """

    def __init__(self, link: Path) -> None:
        self.link = link
        self.dropped = 0
        self._rest = b""
        self._master, slave = pty.openpty()
        tty.setraw(slave)
        os.set_blocking(self._master, False)
        self.device = os.ttyname(slave)
        os.close(slave)  # from here on a hang-up on our end means that the other is not open
        self._poll = select.poll()
        self._poll.register(self._master, 0)
        self._input = select.poll()
        self._input.register(self._master, select.POLLIN)
        self._make_link()

    def _make_link(self) -> None:
        fresh = self.link.with_name(f".{self.link.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(self.device)
        fresh.replace(self.link)

    @property
    def listening(self) -> bool:
        """Whether somebody has the other end open."""
        return not any(events & select.POLLHUP for _, events in self._poll.poll(0))

    def send(self, data: bytes) -> bool:
        """Hand one piece of output over, whole or not at all; False where it was dropped."""
        if not self.listening:
            self._rest = b""
            self.dropped += 1
            return False
        try:
            if self._rest:
                self._rest = self._rest[os.write(self._master, self._rest) :]
            if self._rest:
                raise BlockingIOError
            self._rest = data[os.write(self._master, data) :]
        except BlockingIOError:
            self.dropped += 1
            return False
        return True

    def rename(self, link: Path) -> None:
        """Let another link lead here; the old one goes."""
        old, self.link = self.link, link
        self._make_link()
        self._unlink(old)

    def receive(self) -> bytes:
        """Return what the host has sent since; empty where it sent nothing or is not connected."""
        try:
            return os.read(self._master, _READ_BYTES)
        except OSError:  # EIO: the other end is not open
            return b""

    def wait(self, limit_s: float) -> None:
        """Until the host has sent something, at most `limit_s`."""
        if limit_s <= 0:
            return
        events = self._input.poll(limit_s * 1000)
        if events and not events[0][1] & select.POLLIN:  # a hang-up is told at once
            time.sleep(min(limit_s, _NOBODY_PAUSE_S))

    def close(self) -> None:
        """Pull the plug: whoever has the other end open gets an error. The link goes too."""
        self._unlink(self.link)
        os.close(self._master)

    def _unlink(self, link: Path) -> None:
        if link.is_symlink() and link.readlink() == Path(self.device):
            link.unlink()
