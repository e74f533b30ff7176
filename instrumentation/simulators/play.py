"""A serial port for simulators: a pseudo-terminal that behaves like a USB adapter."""

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
        self._unsent = b""
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
        """Whether the other end is open."""
        return not any(events & select.POLLHUP for _, events in self._poll.poll(0))

    def send(self, data: bytes) -> bool:
        """Send one piece of output, whole or not at all; return False if it was dropped."""
        if not self.listening:
            self._unsent = b""
            self.dropped += 1
            return False
        try:
            if self._unsent:
                self._unsent = self._unsent[os.write(self._master, self._unsent) :]
            if self._unsent:
                raise BlockingIOError
            self._unsent = data[os.write(self._master, data) :]
        except BlockingIOError:
            self.dropped += 1
            return False
        return True

    def rename(self, link: Path) -> None:
        """Replace the link by another one."""
        old, self.link = self.link, link
        self._make_link()
        self._unlink(old)

    def receive(self) -> bytes:
        """Return the bytes that the host has sent; empty also if it is not connected."""
        try:
            return os.read(self._master, _READ_BYTES)
        except OSError:  # EIO: the other end is not open
            return b""

    def wait(self, limit_s: float) -> None:
        """Wait until the host has sent something, at most `limit_s`."""
        if limit_s <= 0:
            return
        events = self._input.poll(limit_s * 1000)
        if events and not events[0][1] & select.POLLIN:  # a hang-up is reported at once
            time.sleep(min(limit_s, _NOBODY_PAUSE_S))

    def close(self) -> None:
        """Close the port and remove the link; a process at the other end gets an error."""
        self._unlink(self.link)
        os.close(self._master)

    def _unlink(self, link: Path) -> None:
        if link.is_symlink() and link.readlink() == Path(self.device):
            link.unlink()
