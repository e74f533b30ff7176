"""The child's side of `workloads.loop`: one line of JSON in, one out, until standard input ends."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workloads.base import WorkloadError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class MissingError(Exception):
    """What was asked for is not there; the message is a sentence with the way out."""


@dataclass(frozen=True)
class Task:
    """What is repeated, and what it is done with, for the report."""

    step: Callable[[], object]
    facts: Mapping[str, Any]


def serve(prepare: Callable[[Mapping[str, Any]], Task]) -> int:
    """Answer `{"job": …}` with what `prepare` says of it, and `{"seconds": s}` by repeating it.

    The report counts whole steps, at least one, and the processor time of this process, in programs
    (`user_s`) and in the kernel (`system_s`).
    """
    _die_with_parent()
    task: Task | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "job" in request:
                task = prepare(request["job"])
                answer: dict[str, Any] = {"ready": True}
            else:
                assert task is not None
                answer = {**task.facts, **_repeat(task.step, float(request["seconds"]))}
        except MissingError as reason:
            answer = {"missing": str(reason)}
        except (WorkloadError, OSError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    return 0


def _repeat(step: Callable[[], object], seconds: float) -> dict[str, float]:
    steps, before, start_s = 0, os.times(), time.monotonic()
    end_s = start_s + seconds
    while True:
        step()
        steps += 1
        now_s = time.monotonic()
        if now_s >= end_s:
            break
    after = os.times()
    return {
        "steps": steps,
        "seconds": now_s - start_s,
        "user_s": after.user - before.user,
        "system_s": after.system - before.system,
    }


def _die_with_parent() -> None:
    """A step may take minutes, in which the end of standard input is not seen."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
