"""The child's side of `workloads.child`: one line in, one line of JSON out.

`{"do": name, …}` has a request answered, which may lay a task out; the line `go` has the task done,
which is all that a phase sees. It ends when its standard input does, or when its parent dies.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from workloads.base import WorkloadError

Outcome = dict[str, Any]
Task = Callable[[], Outcome]
# What a request asks for, and the task that it lays out, if any.
Answer = Callable[[Mapping[str, Any]], tuple[Outcome, Task | None]]
GO = b"go\n"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class MissingError(WorkloadError):
    """What was asked for is not there: a reason to leave it out, with the way out."""


def serve(answers: Mapping[str, Answer]) -> None:
    """Answer requests by what each asks to `do`. The command line has PARENT PLACE.

    PARENT is who started this, by its number. PLACE is the run's folder, so that a process list
    tells whose this is.
    """
    parent, _place = sys.argv[1:]
    _die_with(int(parent))
    gc.disable()  # nothing here makes cycles, and a collection would be measured
    task: Task | None = None
    for line in sys.stdin.buffer:
        try:
            if line == GO:
                if task is None:
                    raise WorkloadError("There is no task to do.")
                said: Outcome = {"outcome": task()}
            else:
                task = None  # its buffers go before there are others
                request = json.loads(line)
                outcome, task = answers[request["do"]](request)
                said = {"outcome": outcome}
        except MissingError as reason:
            said = {"missing": str(reason)}
        except (WorkloadError, OSError, MemoryError) as error:
            said = {"error": str(error) or type(error).__name__}
        print(json.dumps(said), flush=True)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, whatever the parent dies of.

    A task may take minutes, in which the end of standard input is not seen.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:  # it was gone before it could be watched
        sys.exit("The parent has died.")
