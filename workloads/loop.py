"""Let a child process repeat something for a while, so that whoever measures only waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from workloads import programs
from workloads.base import Context, Work, WorkloadError

ROOT = Path(__file__).parents[1]


class Loop:
    """A child of `workloads.loops`, alive within a `with` block; it dies with its parent, too."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __enter__(self) -> Self:
        self._errors = os.fdopen(os.memfd_create("stderr"), "w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-m", f"workloads.loops.{self._module}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=programs.environment(),
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        programs.kill_group(self._process)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            # What was not read by a dead child cannot be written any more.
            with suppress(BrokenPipeError):
                if stream:
                    stream.close()

    def prepare(self, job: Mapping[str, Any]) -> str | None:
        """Make ready for a job; the reason if it cannot be done here. Raises WorkloadError."""
        missing = self._ask({"job": job}).get("missing")
        return None if missing is None else str(missing)

    def run(self, seconds: float) -> dict[str, Any]:
        """Repeat the job for at least so long, at least once: the child's report of it.

        It has `steps`, `seconds`, `user_s`, `system_s`. Raises WorkloadError.
        """
        return self._ask({"seconds": seconds})

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise WorkloadError(f"The loop {self._module} ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkloadError(str(answer["error"]))
        return answer

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        said = programs.last_line(self._errors.read().decode(errors="replace"))
        return said or f"status {self._process.returncode}, without a word."


def measure(context: Context, loop: Loop, phase: str) -> tuple[Work, int]:
    """Run what was prepared as a phase of `seconds`; its work, still to be counted, and its steps.

    The child's report is kept as `<phase>.json`.
    """
    context.drop_caches()
    with context.phase(phase) as work:
        report = loop.run(float(context.parameters["seconds"]))
    (context.kept / f"{phase}.json").write_text(json.dumps(report, indent=1) + "\n")
    return work, int(report["steps"])
