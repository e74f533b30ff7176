"""What the lab needs of QEMU's machine protocol (QMP: JSON lines on a Unix socket)."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from contract.errors import LabError


class Qmp:
    """A QMP session; a context manager. Raises LabError where QEMU does not answer."""

    def __init__(self, path: Path, timeout_s: float = 20) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
            self._file = self._socket.makefile("rw", encoding="utf-8")
            self._read()  # the greeting
            self.execute("qmp_capabilities")
        except (OSError, ValueError, EOFError) as error:
            self._socket.close()
            raise LabError(f"QEMU does not answer on {path}: {error}") from error

    def __enter__(self) -> Qmp:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def execute(self, command: str, **arguments: Any) -> Any:
        """The `return` member of the answer; events in between are passed over."""
        asked: dict[str, Any] = {"execute": command}
        if arguments:
            asked["arguments"] = arguments
        self._file.write(json.dumps(asked) + "\n")
        self._file.flush()
        while True:
            answer = self._read()
            if "error" in answer:
                raise LabError(f"QEMU refused {command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]

    def wait_for(self, event: str) -> None:
        """Until QEMU tells of this event. Raises LabError where it does not within the timeout."""
        try:
            while self._read().get("event") != event:
                pass
        except (OSError, ValueError, EOFError) as error:
            raise LabError(f"QEMU did not tell of {event}: {error}") from error

    def _read(self) -> dict[str, Any]:
        line = self._file.readline()
        if not line:
            raise EOFError("connection closed")
        answer: dict[str, Any] = json.loads(line)
        return answer


def vcpu_thread_ids(path: Path) -> list[int]:
    """Host thread ids of the guest's CPUs, in the order of the CPUs."""
    with Qmp(path) as qmp:
        cpus = qmp.execute("query-cpus-fast")
    return [int(c["thread-id"]) for c in sorted(cpus, key=lambda c: int(c["cpu-index"]))]
