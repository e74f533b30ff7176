"""Control socket: one JSON object a line in, one a line out.

`{"command": name, …}` is answered by `{"ok": true, …}` or by `{"ok": false, "error": sentence}`.
The commands are those of `drive.actions`. For people:

    python -m drive.control SOCKET status
    python -m drive.control SOCKET fault slow-reply --set delay_ms=50 --set count=10
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Action = Callable[[Mapping[str, Any]], Mapping[str, Any]]
_MAX_LINE_BYTES = 4096
_MAX_PATH_BYTES = 107
_PROBE_S = 5
_log = logging.getLogger("drive.control")


class ControlError(Exception):
    """The command failed; the message is one sentence for people."""


class ControlSocket:
    """Answers `actions` by name on a unix socket that only its owner can use.

    An action gets the request without its command; it raises ControlError, ValueError or OSError
    with a sentence for what it refuses.
    """

    def __init__(self, path: Path, actions: Mapping[str, Action]) -> None:
        self._actions = actions
        if len(bytes(path)) > _MAX_PATH_BYTES:
            raise ControlError(
                f"{path} is too long for a socket ({_MAX_PATH_BYTES} bytes); give another --control"
            )
        _make_way(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._path, self._inode = path, path.lstat().st_ino
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Remove the socket, unless another process has replaced it."""
        with contextlib.suppress(FileNotFoundError):
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                _log.warning("no connection accepted: %s", error)
                time.sleep(0.1)  # most likely too many open files
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rwb") as stream:
            while line := stream.readline(_MAX_LINE_BYTES):
                stream.write(json.dumps(self._answer(line)).encode() + b"\n")
                stream.flush()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = dict(json.loads(line))
            action = self._actions[request.pop("command")]
        except (ValueError, KeyError, TypeError, RecursionError):
            commands = ", ".join(sorted(self._actions))
            return {"ok": False, "error": f'send {{"command": …}} with one of: {commands}'}
        try:
            return {"ok": True, **action(request)}
        except (ControlError, ValueError, OSError) as error:
            return {"ok": False, "error": str(error)}


def _make_way(path: Path) -> None:
    """Remove a socket that no process answers any more; raises ControlError for all else."""
    try:
        if stat.S_ISSOCK(path.lstat().st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(_PROBE_S)
                client.connect(str(path))
            raise ControlError(f"somebody answers at {path}; name another socket with --control")
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink()
        return
    except OSError as error:
        raise ControlError(f"{path}: {error.strerror}; name another --control") from error
    raise ControlError(f"{path} is there and is not a socket; name another one with --control")


def ask(path: Path, command: str, timeout_s: float = 30, **parameters: Any) -> dict[str, Any]:
    """Send one command to a running drive and return its answer."""
    return _send(path, {**parameters, "command": command}, timeout_s)


def _send(path: Path, request: Mapping[str, Any], timeout_s: float = 30) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        client.connect(str(path))
        client.sendall(json.dumps(request).encode() + b"\n")
        with client.makefile("rb") as stream:
            answer: dict[str, Any] = json.loads(stream.readline())
    return answer


def _setting(text: str) -> tuple[str, int | str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text} is not of the form key=value")
    try:
        return key, int(value, 0)
    except ValueError:
        return key, value


def main(arguments: list[str] | None = None) -> int:
    """Ask the drive; return 0 on success, 1 if the drive refuses or does not answer."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.control", description="Ask a running virtual drive."
    )
    parser.add_argument("socket", type=Path, help="the drive's --control")
    parser.add_argument("command", help="status, stats, power-cycle, warm-reset, calls, fault, …")
    parser.add_argument("name", nargs="?", help="of a fault")
    parser.add_argument("--set", type=_setting, action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    request = dict(options.set) | ({"name": options.name} if options.name else {})
    try:
        answer = _send(options.socket, {**request, "command": options.command})
    except (OSError, ValueError) as error:
        print(f"fde: no drive answers at {options.socket}: {error}", file=sys.stderr)
        return 1
    if not answer.pop("ok"):
        print(f"fde: {answer['error']}", file=sys.stderr)
        return 1
    print(json.dumps(answer, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
