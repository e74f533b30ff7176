"""The child's side of `workloads.child`: answer lines with lines of JSON, and repeat a step."""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, get_type_hints

from contract import schema
from workloads.base import WorkloadError

_Job = TypeVar("_Job", bound="Job")

Outcome = dict[str, Any]  # JSON
Task = Callable[[], Outcome]
GO = b"go\n"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class MissingError(WorkloadError):
    """Something requested is not available: a reason to leave it out, with the remedy."""


@dataclass(frozen=True)
class Job:
    """A job to repeat, sent to the child as JSON; each kind of child has separate fields."""


def serve(**answers: Callable[[Any], tuple[Outcome, Task | None]]) -> None:
    """Answer requests with the function named in `do`. The command line has PARENT PLACE.

    A function takes a request of the shape that it declares; it returns its outcome, and the
    prepared task, if any. PARENT is the process id of the parent. PLACE is the run's folder, so
    that a process list shows the owner.
    """
    parent, _place = sys.argv[1:]
    # The kernel kills this process when its parent dies for any reason: a task may take minutes,
    # during which the end of standard input goes unnoticed.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != int(parent):  # the parent died before prctl
        sys.exit("The parent has died.")
    gc.disable()  # nothing here makes cycles, and a collection would be measured
    task: Task | None = None
    for line in sys.stdin.buffer:
        try:
            if line == GO:
                if task is None:
                    raise WorkloadError("no-task")
                reply: Outcome = {"outcome": task()}
            else:
                task = None  # frees its buffers before new ones are allocated
                document = json.loads(line)
                answer = answers[document["do"]]
                shape, _ = get_type_hints(answer).values()
                outcome, task = answer(schema.read(shape, document))
                reply = {"outcome": outcome}
        except (WorkloadError, OSError, MemoryError) as error:
            refusal = WorkloadError(error if str(error) else type(error).__name__)
            documents = [problem.document() for problem in refusal.problems]
            reply = {"problems": documents, "missing": isinstance(error, MissingError)}
        print(json.dumps(reply), flush=True)


NS = 1_000_000_000
# The longest time of a batch between two readings of the clock.
BATCH_NS = 5_000_000
Step = Callable[[], object]


def for_seconds(step: Step | Sequence[Step], seconds: float, batch: int = 1) -> Outcome:
    """Run whole batches of steps, at least one, until the time is over.

    Several steps run in separate threads; their counts are added, and the last one to finish ends
    it.

    Reports the `steps`, the `seconds` they took, and the processor time of this process in
    programs (`user_s`) and in the kernel (`system_s`).
    """
    threads_steps = [step] if callable(step) else list(step)
    before = resource.getrusage(resource.RUSAGE_SELF)
    started_ns = time.monotonic_ns()
    end_ns = started_ns + int(seconds * NS)
    if len(threads_steps) == 1:
        steps = _repeat_until(threads_steps[0], end_ns, batch)
    else:
        with ThreadPoolExecutor(len(threads_steps)) as threads:
            counts = threads.map(lambda step: _repeat_until(step, end_ns, batch), threads_steps)
            steps = sum(counts)
    now_ns = time.monotonic_ns()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "steps": steps,
        "seconds": (now_ns - started_ns) / NS,
        "user_s": after.ru_utime - before.ru_utime,
        "system_s": after.ru_stime - before.ru_stime,
    }


def _repeat_until(step: Step, end_ns: int, batch: int) -> int:
    """Run whole batches until the time; return the number of steps."""
    steps = 0
    while True:
        _batch(step, batch)
        steps += batch
        if time.monotonic_ns() >= end_ns:
            return steps


@dataclass(frozen=True)
class Repeat:
    """A request to repeat `job` for `seconds`."""

    job: Any
    seconds: float


def repeating(
    key: str, job: type[_Job], prepare: Callable[[_Job], tuple[object, Step | Sequence[Step]]]
) -> Callable[[Repeat], tuple[Outcome, Task]]:
    """Return the answer to `repeat`, which prepares a job of the shape `job` for repetition.

    `prepare` returns what does the work, reported as `key`, and the step, or one for each thread.
    """

    def answer(request: Repeat) -> tuple[Outcome, Task]:
        prepared, step = prepare(schema.read(job, request.job))
        again = partial(for_seconds, step, request.seconds)
        return {key: prepared, "job": request.job}, again

    return answer


def calibrate(step: Step) -> tuple[int, float]:
    """Return the steps in a batch of some 5 ms, and the CPU seconds of one; warms it up."""
    count = 1
    while True:
        started_ns = time.process_time_ns()
        _batch(step, count)
        taken_ns = time.process_time_ns() - started_ns
        if taken_ns >= BATCH_NS // 2:
            return max(1, count * BATCH_NS // taken_ns), taken_ns / count / NS
        count *= 2


def _batch(step: Step, count: int) -> None:
    for _ in itertools.repeat(None, count):
        step()
