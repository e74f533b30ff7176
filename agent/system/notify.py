"""Reports of the agent as a service to systemd (sd_notify(3)), and its unit.

Outside of a service these functions do nothing.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from contextlib import suppress
from typing import Self

from agent.system.command import CommandError, run

# The unit's own name, from its file: a step needs it to be started again after a boot.
UNIT = "FDE_UNIT"


class Watchdog:
    """Pings from a thread until the block ends, while the present step keeps to its time.

    systemd then restarts a step that hangs, even in the kernel. Three pings come within the
    service's WatchdogSec: one every 40 s costs nothing measurable.
    """

    def __init__(self, send: bool = True) -> None:
        self._until_s = math.inf
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        limit_us = os.environ.get("WATCHDOG_USEC", "")
        if send and limit_us.isdigit():
            period_s = int(limit_us) / 3e6
            self._thread = threading.Thread(target=self._ping, args=(period_s,), daemon=True)
            self._thread.start()

    def within(self, seconds: float) -> None:
        """Limit the step that begins now to `seconds`; infinity for one without a limit."""
        self._until_s = time.monotonic() + seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the pings."""
        self._ended.set()
        if self._thread:
            self._thread.join()

    def _ping(self, period_s: float) -> None:
        while True:
            if time.monotonic() < self._until_s:
                tell("WATCHDOG=1")
            if self._ended.wait(period_s):
                return


def tell(message: str) -> None:
    """Send a message such as `READY=1`; errors are ignored."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # A leading @ stands for a socket without a name in the file system.
    place = "\0" + address[1:] if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.sendto(message.encode(), place)


def is_service() -> bool:
    """Return whether systemd started this process and expects its messages."""
    return "NOTIFY_SOCKET" in os.environ


def start_after_boot(enabled: bool) -> None:
    """Have systemd start the unit with the machine, or no longer."""
    unit = os.environ.get(UNIT)
    if not unit:
        return
    with suppress(CommandError):
        is_enabled = run(["systemctl", "is-enabled", unit], ok=range(256)).out.strip() == "enabled"
        if is_enabled != enabled:
            # For the next boot the links on the disk count: no need to read all units again.
            verb = "enable" if enabled else "disable"
            run(["systemctl", verb, "--quiet", "--no-reload", unit])


def going_down() -> bool:
    """Whether the whole machine is being shut down or restarted."""
    if not is_service():
        return False
    try:
        return run(["systemctl", "is-system-running"], ok=range(256)).out.strip() == "stopping"
    except CommandError:
        return False
