"""Run measured work in a child process, so that the measuring process only waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Self

from contract import schema
from contract.problem import Problem
from contract.strict_json import Document, Json
from workloads import programs
from workloads.base import Context, Work, WorkloadError
from workloads.children.serving import GO, Job, MissingError, Outcome

ROOT = Path(__file__).parents[1]


class Child:
    """A child of `workloads.children`, alive within a `with` block; it dies with its parent, too.

    It is started before the phases. In a phase only `go` is called: one write, and a wait for the
    answer, which `outcome` parses after the phase. `place` is the run's folder under test,
    `environment` replaces that of all programs.
    """

    def __init__(
        self, module: str, place: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._module, self._place, self._environment = module, place, environment

    def __enter__(self) -> Self:
        command = [sys.executable, "-B", "-m", f"workloads.children.{self._module}"]
        command += [str(os.getpid()), str(self._place)]
        environ = self._environment or programs.environment()
        self._started = programs.start(command, subprocess.PIPE, environ, cwd=ROOT)
        self._process = self._started.process
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()
        if self._process.stdin:
            self._process.stdin.close()

    def ask(self, do: str, **request: Json) -> Outcome:
        """Send a request, or have a task prepared, and return the outcome.

        Raises MissingError for something not available, WorkloadError with the child's last
        message.
        """
        return self.outcome(self._exchange(json.dumps({"do": do, **request}).encode() + b"\n"))

    def go(self) -> bytes:
        """Run the task that was prepared last; return the answer for `outcome`, after the phase."""
        return self._exchange(GO)

    def outcome(self, answer: bytes) -> Outcome:
        """Return the child's outcome; WorkloadError if it failed or has ended."""
        if not answer.endswith(b"\n"):
            status = self._process.wait()
            words = f"(status {status}): {self._started.last_words() or 'no output.'}"
            raise WorkloadError("child-ended", module=self._module, words=words)
        reply = json.loads(answer)
        if "problems" in reply:
            kind = MissingError if reply["missing"] else WorkloadError
            raise kind(*(schema.read(Problem, document) for document in reply["problems"]))
        outcome: Outcome = reply["outcome"]
        return outcome

    def _exchange(self, line: bytes) -> bytes:
        assert self._process.stdin
        try:
            os.write(self._process.stdin.fileno(), line)
        except BrokenPipeError:
            return b""
        return self._started.output.readline()


def measure(context: Context, child: Child, phase: str) -> tuple[Work, Outcome]:
    """Run the prepared task as a phase; return its work, still to be counted, and the report."""
    with context.phase(phase) as work:
        answer = child.go()
    return work, child.outcome(answer)


def repeat(context: Context, child: Child, phase: str, job: Job) -> tuple[Work, int]:
    """Repeat a job for the parameter `seconds` as a phase, and save its report.

    Returns the work, still to be counted, and the number of repetitions. MissingError before the
    phase.
    """
    seconds = float(context.parameters["seconds"])
    laid_out = child.ask("repeat", job=asdict(job), seconds=seconds)
    context.drop_caches()
    work, report = measure(context, child, phase)
    keep(context, phase, {**laid_out, **report})
    return work, int(report["steps"])


def keep(context: Context, name: str, report: Document) -> None:
    """Save a report with the run's results as `<name>.json`."""
    (context.kept / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
