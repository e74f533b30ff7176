"""Base of simulated meters on a network.

A display that is refreshed by its own clock, and the ways in which such devices fail. Each kind
serves its protocol for real (`serve`).
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from contract.strict_json import Document
from instrumentation.meters.answers import envelope


class Server(Protocol):
    """A simulated meter that is on the network."""

    address: str

    def close(self) -> None:
        """Stop the server."""


class NetworkSimulator(ABC):
    """A simulated networked meter; does no I/O until it is served.

    `refresh_s` is the time between two refreshes of its display, which shows the mean between them,
    rounded to `step_w`. Its counter moves every `counter_s` by whole `counter_step_j`. `broken`
    makes it answer as it does when it is busy, `silent` not at all.
    """

    kind: ClassVar[str]
    full_scale_w: float = 2500.0
    channels: Sequence[str] = ("0",)

    def __init__(
        self,
        refresh_s: float = 1.0,
        step_w: float = 0.1,
        counter_s: float = 0.0,
        counter_step_j: float = 3.6,
    ) -> None:
        self.refresh_s, self.step_w = refresh_s, step_w
        self._counter_s, self._counter_step_j = counter_s, counter_step_j
        self.broken = self.silent = False
        self.refreshes = 0
        self.power_w = [0.0] * len(self.channels)
        self.energy_j = [0.0] * len(self.channels)
        self._before_j = np.zeros(len(self.channels))
        self._lock = threading.Lock()

    @property
    @abstractmethod
    def settings(self) -> Document:
        """Settings of the meter in the inventory."""

    @abstractmethod
    def answer(self, request: str) -> tuple[str, bytes] | None:
        """Return label and body of the answer to one line; None for no answer."""

    @abstractmethod
    def serve(self, host: str, port: int, secret: str = "") -> Server:
        """Serve the meter, at a free port if `port` is 0; `secret` is the required login."""

    @property
    def period_s(self) -> float:
        return self.refresh_s

    @property
    def resolution_w(self) -> float:
        return self.step_w * 0.501

    def advance(self, energy_j: NDArray[np.float64]) -> bytes:
        """See `Simulator.advance`."""
        with self._lock:
            for joules in energy_j:
                self._refresh(np.asarray(joules, np.float64))
        return b""

    def _refresh(self, joules: NDArray[np.float64]) -> None:
        watts = (joules - self._before_j) / self.refresh_s
        self._before_j = joules
        self.refreshes += 1
        self.power_w = [round(w / self.step_w) * self.step_w for w in watts.tolist()]
        every = max(1, round(self._counter_s / self.refresh_s))
        if self.refreshes % every == 0:
            step_j = self._counter_step_j
            self.energy_j = [int(j / step_j + 1e-9) * step_j for j in joules.tolist()]

    def receive(self, data: bytes) -> bytes:
        """See `Simulator.receive`; the answer is in the transport's envelope."""
        answers = [self.asked(line) for line in data.decode().splitlines()]
        return b"".join(envelope(*answer) for answer in answers if answer is not None)

    def asked(self, line: str) -> tuple[str, bytes] | None:
        """Return the present readings."""
        with self._lock:
            return None if self.silent else self.answer(line)


class Live:
    """A thread that advances a simulator in real time, at these powers, until it is closed."""

    def __init__(self, simulator: NetworkSimulator, watts: Sequence[float]) -> None:
        self.watts = list(watts)
        self._simulator = simulator
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        joules = np.zeros(len(self.watts))
        start_s, periods = time.monotonic(), 0
        while True:
            periods += 1
            due_s = start_s + periods * self._simulator.refresh_s
            if self._over.wait(max(0.0, due_s - time.monotonic())):
                return
            joules = joules + np.array(self.watts) * self._simulator.refresh_s
            self._simulator.advance(joules[None, :])

    def close(self) -> None:
        self._over.set()
        self._thread.join()


class TcpServer:
    """A TCP server that answers lines, for instruments with a plain socket."""

    def __init__(self, respond: Callable[[bytes], bytes], host: str, port: int) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                owner.connections.append(self.connection)
                for line in self.rfile:
                    if answer := respond(line):
                        self.wfile.write(answer)

        owner = self
        self.connections: list[socket.socket] = []
        self._server = socketserver.ThreadingTCPServer(
            (host, port), Handler, bind_and_activate=False
        )
        self._server.allow_reuse_address = self._server.daemon_threads = True
        self._server.server_bind()
        self._server.server_activate()
        self.port = int(self._server.server_address[1])
        self.address = f"TCPIP::{host}::{self.port}::SOCKET"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def send(self, data: bytes) -> None:
        """Send data to all connections."""
        for connection in self.connections if data else []:
            with contextlib.suppress(OSError):
                connection.sendall(data)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
