"""One disk as its hosts share it: its controllers, medium and TPer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from .behaviour import Timing
from .faults import Faults
from .identify import DriveConfig
from .media import Media
from .nvme_tcp import Connection
from .opal.tper import Tper
from .power import PowerMeter
from .stats import Stats
from .status import CONNECT_INVALID, CommandError
from .vices import Vices

_CONTROLLER_IDS = 0xFFEF  # larger numbers are reserved


class Subsystem:
    """One disk and the controllers that hosts have opened on it; `tper` is None for a plain one.

    `on_power_loss` is called by a command that meets a power cut. `denied_reads` and
    `denied_writes` count the commands that a locked range refused since the start.
    """

    def __init__(
        self, config: DriveConfig, media: Media, stats: Stats, tper: Tper | None = None
    ) -> None:
        self.config = config
        self.media = media
        self.stats = stats
        self.tper = tper
        self.faults = Faults()
        self.vices = Vices()
        self.denied_reads = self.denied_writes = 0
        self.timing: Timing | None = None  # as fast as it can be, and without a temperature
        self.power: PowerMeter | None = None  # as most drives: it measures none
        self.on_power_loss: Callable[[], object] = lambda: None
        self._controllers: dict[int, Controller] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()

    def open_controller(self, connection: Connection) -> Controller:
        """Create a controller with `connection` as its admin queue."""
        with self._lock:
            open_ids = self._controllers.keys()
            number = next(n for i in self._ids if (n := i % _CONTROLLER_IDS + 1) not in open_ids)
            controller = self._controllers[number] = Controller(number)
            controller.connections.append(connection)
        return controller

    def join(self, controller_id: int, connection: Connection) -> Controller:
        """Add a queue to the controller and return it; raises CommandError if it does not exist."""
        with self._lock:
            if controller_id not in self._controllers:
                raise CommandError(CONNECT_INVALID)
            controller = self._controllers[controller_id]
            controller.connections.append(connection)
        return controller

    def leave(self, controller: Controller, connection: Connection) -> None:
        """Remove an ended I/O queue."""
        with self._lock:
            controller.connections.remove(connection)

    def close_controller(self, controller: Controller) -> None:
        """End the controller's other connections and its session in the TPer.

        In NVMe over Fabrics, losing the association is a controller level reset.
        """
        with self._lock:
            self._controllers.pop(controller.id, None)
            connections = list(controller.connections)
        if self.tper is not None:
            self.tper.forget(controller.id)
            if not controller.was_reset:
                self.reset_security()
        for connection in connections:
            connection.close()

    def count_denied(self, *, is_read: bool) -> None:
        """Count a command that a locked range refused."""
        with self._lock:
            self.denied_reads += is_read
            self.denied_writes += not is_read

    def reset_security(self) -> None:
        """Notify the TPer of a controller level reset."""
        if self.tper is not None:
            self.tper.reset()

    def reset_controllers(self) -> None:
        """Mark all controllers as reset, so that their end is no further reset."""
        with self._lock:
            for controller in self._controllers.values():
                controller.was_reset = True


class Controller:
    """The registers of one controller and the connections that belong to it."""

    def __init__(self, controller_id: int) -> None:
        self.id = controller_id
        self.configuration = 0
        self.was_reset = False
        self.connections: list[Connection] = []

    @property
    def status_register(self) -> int:
        """CSTS: ready follows enable; a shutdown is complete at once."""
        ready = self.configuration & 1
        return ready | (2 << 2 if self.configuration >> 14 & 3 else 0)
