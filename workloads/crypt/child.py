"""The child that does the measured work: `python3 -m workloads.crypt.child TASKS PARENT PLACE`.

It answers one line of JSON with one line: `{"do": name, ...}` lays a task out, and the line `go`
does it, which is all that a phase sees. It ends when its standard input does or when its parent
dies. PLACE is the run's folder, named so that a process list tells whose this is.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from workloads.base import WorkloadError

Outcome = dict[str, Any]
Task = Callable[[], Outcome]
# Each module of tasks has one by this name: it answers a request, and gives the task for `go`.
Answer = Callable[[dict[str, Any]], tuple[Outcome, Task | None]]
GO = "go\n"
WITHOUT_LEGACY = "CRYPTOGRAPHY_OPENSSL_NO_LEGACY"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, whatever the parent dies of."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:  # it was gone before it could be watched
        sys.exit("The parent has died.")


def load(module: str) -> Answer:
    """A module's `answer`; without OpenSSL's legacy provider where that is not installed.

    `cryptography` refuses to load then, unless it is told before its first import: start again.
    """
    try:
        importlib.import_module("cryptography.hazmat.backends.openssl").backend  # noqa: B018
    except ImportError:
        raise
    except Exception:  # its own InternalError or, in newer ones, RuntimeError
        if WITHOUT_LEGACY in os.environ:
            raise
        os.execve(sys.executable, sys.orig_argv, {**os.environ, WITHOUT_LEGACY: "1"})
    answer: Answer = importlib.import_module(f"workloads.crypt.{module}").answer
    return answer


def serve(answer: Answer) -> None:
    task: Task | None = None
    for line in sys.stdin:
        try:
            if line == GO:
                if task is None:
                    raise WorkloadError("There is no task to do.")
                outcome = task()
            else:
                task = None  # its buffers go before there are others
                outcome, task = answer(json.loads(line))
            said: dict[str, Any] = {"outcome": outcome}
        except (WorkloadError, OSError, MemoryError) as error:
            said = {"error": str(error) or type(error).__name__}
        print(json.dumps(said), flush=True)


def main() -> None:
    module, parent, _place = sys.argv[1:]
    die_with(int(parent))
    gc.disable()  # nothing here makes cycles, and a collection would be measured
    serve(load(module))


if __name__ == "__main__":
    main()
