"""A serial port that a simulator talks to: a pseudo-terminal that behaves like a USB adapter."""

from __future__ import annotations

import os
import pty
import random
import select
import time
import tty
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from instrumentation.simulators.faults import Faults, FaultyMeter, FaultyWire
from instrumentation.simulators.registry import Simulator

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


UNPLUGGED_S = 1.0
_PIECE_S = 0.004  # a faster meter's readings are sent this much at a time
_LOOK_S = 0.1


class Player:
    """One meter at one link. `run` returns once `stopped()` is true; `close` unplugs it.

    `watts` is the power through each channel; `make` makes the meter that was just switched on.
    """

    def __init__(
        self,
        make: Callable[[], Simulator],
        link: Path,
        watts: Sequence[float],
        faults: Faults = Faults(),  # noqa: B008 - frozen
        seed: int = 0,
    ) -> None:
        self._meter = FaultyMeter(make, seed, step=faults.step, restart=faults.restart)
        if len(watts) != len(self._meter.channels):
            raise ValueError(
                f"This meter has {len(self._meter.channels)} channels "
                f"({', '.join(self._meter.channels)}): give as many watts."
            )
        self._watts = np.asarray(watts, np.float64)
        self._wire = FaultyWire(seed, faults)
        self._unplug = faults.unplug
        self._random = random.Random(seed)
        self._period_s = self._meter.period_s / (1 + faults.skew * 1e-6)  # in true seconds
        self._together = max(1, round(_PIECE_S / self._period_s))
        self._link = link
        self._port = SimulatedPort(link)
        self._done = 0
        self._back_s: float | None = None  # when it will be plugged in again
        self.unplugged = 0

    @property
    def hit(self) -> int:
        """Pieces that did not leave as they were made, and faults of the meter itself."""
        return self._wire.hit + len(self._meter.struck) + self.unplugged

    def run(self, stopped: Callable[[], bool]) -> None:
        start_s = time.monotonic()
        while not stopped():
            due_s = start_s + (self._done + self._together) * self._period_s
            wait_s = due_s - time.monotonic()
            if wait_s <= 0:
                self._advance()
                continue
            self._port.wait(min(wait_s, _LOOK_S))
            if asked := self._port.receive():
                self._send(self._meter.receive(asked))

    def _advance(self) -> None:
        periods = np.arange(self._done + 1, self._done + self._together + 1)
        self._done += self._together
        # By its own clock: a meter averages what it samples, so its clock's error changes no watts.
        own_s = periods * self._meter.period_s
        self._send(self._meter.advance(np.outer(own_s, self._watts)))
        if self._back_s is not None:
            self._plug_in(self._back_s)
        elif self._unplug and self._random.random() < self._unplug:
            self._pull()

    def _send(self, data: bytes) -> None:
        if arrived := self._wire.carry(data):
            self._port.send(arrived)

    def _pull(self) -> None:
        """Away for a while. Where it will be back is made now, while the old number is taken."""
        self.unplugged += 1
        back = SimulatedPort(self._link.with_name(f".{self._link.name}.unplugged"))
        self._port.close()
        self._port = back
        self._back_s = time.monotonic() + UNPLUGGED_S

    def _plug_in(self, back_s: float) -> None:
        if time.monotonic() >= back_s:
            self._port.rename(self._link)
            self._back_s = None

    def close(self) -> None:
        """Unplug it for good."""
        self._port.close()
