"""Listens for hosts; one thread serves one connection."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading

from lab.drive.controller import Queue, Subsystem
from lab.drive.nvme_tcp import Connection, ProtocolError

_log = logging.getLogger("drive")


class Server:
    """The transport's end of one subsystem, on 127.0.0.1."""

    def __init__(self, subsystem: Subsystem, port: int) -> None:
        self._subsystem = subsystem
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """Accepts connections until `close` is called."""
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve_connection, args=(sock,), daemon=True).start()

    def _serve_connection(self, sock: socket.socket) -> None:
        connection = Connection(sock)
        queue = Queue(self._subsystem, connection)
        with self._lock:
            self._connections.add(connection)
        try:
            connection.run(queue)
        except ProtocolError as error:
            _log.warning("connection ended: %s", error)
        except OSError as error:
            _log.info("connection ended: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            queue.close()
            sock.close()

    def drop_connections(self) -> None:
        """Ends every connection, as a loss of power does."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()

    def close(self) -> None:
        """Stops accepting and ends every connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
