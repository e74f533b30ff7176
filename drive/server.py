"""Accept hosts; one thread serves one connection."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from .controller import Queue
from .nvme_tcp import Connection, ProtocolError
from .peers import refusal
from .subsystem import Subsystem

MAX_CONNECTIONS = 64
_LOGIN_S = 10
_log = logging.getLogger("drive")


class Server:
    """The transport's end of one subsystem.

    At most `MAX_CONNECTIONS` are served at once, each with a little over 1 MiB of buffers; more are
    closed at once. One that stays silent before its Connect command is closed after ten seconds.
    """

    def __init__(
        self, subsystem: Subsystem, port: int, address: str, users: AbstractSet[int] | None
    ) -> None:
        self._subsystem = subsystem
        self._listener = socket.create_server((address, port), backlog=socket.SOMAXCONN)
        self._users = users
        self._connections: set[Connection] = set()
        self._closed = False
        self._lock = threading.Lock()
        self._gate = threading.Lock()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """Accept connections until `close` is called."""
        while not self._closed:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if not self._closed:
                    _log.warning("no connection accepted: %s", error)
                    time.sleep(0.1)  # most likely too many open files
                continue
            with self._gate:
                self._admit(sock)

    def _admit(self, sock: socket.socket) -> None:
        if reason := refusal(sock, self._users):
            _log.warning("connection refused: %s", reason)
            sock.close()
            return
        with self._lock:
            if len(self._connections) >= MAX_CONNECTIONS:
                _log.warning("connection refused: %d are open", MAX_CONNECTIONS)
                sock.close()
                return
            connection = Connection(sock)
            self._connections.add(connection)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _set_silence(sock, _LOGIN_S)
        serve = threading.Thread(target=self._serve_connection, args=(sock, connection))
        serve.daemon = True
        serve.start()

    def _serve_connection(self, sock: socket.socket, connection: Connection) -> None:
        queue = Queue(self._subsystem, connection, lambda: _set_silence(sock, 0))
        try:
            connection.run(queue)
        except ProtocolError as error:
            _log.warning("connection ended: %s", error)
        except OSError as error:
            _log.info("connection ended: %s", error)
        finally:
            queue.close()
            sock.close()
            with self._lock:
                self._connections.discard(connection)

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """End every connection, as a loss of power does; new ones wait until the block ends.

        So no host sees a drive that has lost its power and not yet locked.
        """
        with self._gate:
            self._drop_connections()
            yield

    def _drop_connections(self) -> None:
        with self._lock:
            connections = list(self._connections)
        for connection in connections:  # before the first host notices, none is served any more
            connection.silence()
        for connection in connections:
            connection.close()

    def close(self) -> None:
        """Stop accepting and end every connection."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._drop_connections()


def _set_silence(sock: socket.socket, limit_s: int) -> None:
    """Set how long the kernel waits for the peer's next bytes before reading fails; 0: for ever."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", limit_s, 0))
