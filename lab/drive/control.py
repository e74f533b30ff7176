"""Control socket: one JSON object a line in, one a line out.

`{"command": "stats" | "status" | "power-cycle"}` is answered by `{"ok": true, ...}` or by
`{"ok": false, "error": sentence}`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Action = Callable[[], Mapping[str, Any]]
_MAX_LINE_BYTES = 4096


class ControlSocket:
    """Answers `actions` by name on a unix socket that only its owner can use."""

    def __init__(self, path: Path, actions: Mapping[str, Action]) -> None:
        self._actions = actions
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rwb") as stream:
            while line := stream.readline(_MAX_LINE_BYTES):
                stream.write(json.dumps(self._answer(line)).encode() + b"\n")
                stream.flush()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            action = self._actions[request["command"]]
        except (ValueError, KeyError, TypeError):
            known = ", ".join(sorted(self._actions))
            return {"ok": False, "error": f'send {{"command": …}} with one of: {known}'}
        return {"ok": True, **action()}


def ask(path: Path, command: str, timeout_s: float = 30) -> dict[str, Any]:
    """Sends one command to a running drive and returns its answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        client.connect(str(path))
        client.sendall(json.dumps({"command": command}).encode() + b"\n")
        with client.makefile("rb") as stream:
            answer: dict[str, Any] = json.loads(stream.readline())
    return answer
