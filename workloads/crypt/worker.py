"""The agent's side of the child: start it, lay tasks out, and wait while it works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from workloads import programs
from workloads.base import WorkloadError

_ROOT = Path(__file__).parents[2]


class Worker:
    """A child with the tasks of one module of this package, killed on leaving.

    It is started before the phases. In a phase, `go` alone is called: one write, and a wait for
    the answer, which is read after the phase by `outcome`.
    """

    def __init__(self, tasks: str, place: Path, environment: Mapping[str, str]) -> None:
        self._errors = os.fdopen(os.memfd_create("stderr"), "w+b")
        command = [sys.executable, "-m", "workloads.crypt.child"]
        self._process = subprocess.Popen(
            [*command, tasks, str(os.getpid()), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(environment),
            cwd=_ROOT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        programs.kill_group(self._process)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe:
                pipe.close()

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Have a request answered or a task laid out; WorkloadError with the child's words."""
        return self.outcome(self._exchange(json.dumps({"do": do, **request}).encode() + b"\n"))

    def go(self) -> bytes:
        """Have the task done that was laid out last; for `outcome`, after the phase."""
        return self._exchange(b"go\n")

    def outcome(self, answer: bytes) -> dict[str, Any]:
        """What the child says; WorkloadError if it failed or has ended."""
        if not answer:
            status = self._process.wait()
            self._errors.seek(0)
            said = programs.last_line(self._errors.read().decode(errors="replace"))
            raise WorkloadError(
                f"The child that does the ciphers ended (status {status}): {said or 'silent'}"
            )
        read = json.loads(answer)
        if "error" in read:
            raise WorkloadError(str(read["error"]))
        outcome: dict[str, Any] = read["outcome"]
        return outcome

    def _exchange(self, line: bytes) -> bytes:
        assert self._process.stdin and self._process.stdout
        try:
            os.write(self._process.stdin.fileno(), line)
        except BrokenPipeError:
            return b""
        return self._process.stdout.readline()
