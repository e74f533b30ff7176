"""What goes over a host's connections, recorded by a relay between it and the drive."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Recording:
    """The bytes that hosts sent, one buffer a connection, in the order of connecting."""

    def __init__(self, port: int, drive_port: int) -> None:
        self.port = port
        self.sent: list[bytearray] = []
        self._drive_port = drive_port

    def relay(self, host: socket.socket) -> None:
        """Serves one connection until either side closes it."""
        buffer = bytearray()
        self.sent.append(buffer)
        with host, socket.create_connection(("127.0.0.1", self._drive_port)) as drive:
            back = threading.Thread(target=_copy, args=(drive, host, None), daemon=True)
            back.start()
            _copy(host, drive, buffer)
            back.join()


def _copy(source: socket.socket, target: socket.socket, keep: bytearray | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            if keep is not None:
                keep += data
            target.sendall(data)
    for sock in (source, target):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def record(drive_port: int) -> Iterator[Recording]:
    """A port to connect to in place of the drive's, for the time of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        recording = Recording(int(listener.getsockname()[1]), drive_port)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    host, _ = listener.accept()
                    threading.Thread(target=recording.relay, args=(host,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield recording
        finally:
            listener.shutdown(socket.SHUT_RDWR)
