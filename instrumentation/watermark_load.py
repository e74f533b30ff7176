"""Keep one CPU busy in the stretches that the parent process sends; a child of the watermark.

Run as a file by `watermark.py`; imports only the standard library.
"""

from __future__ import annotations

import json
import os
import sys
import time

# Readings of the clock between two checks that the parent still lives.
SPINS_PER_CHECK = 64


def sleep_until(t_ns: int) -> None:
    """Sleep until a time of CLOCK_MONOTONIC."""
    while (wait_ns := t_ns - time.monotonic_ns()) > 0:
        time.sleep(wait_ns / 1e9)


def _spin_until(t_ns: int, parent: int) -> int:
    """Keep the CPU busy; return the time at which that ended. Exits if the parent has ended."""
    clock = time.monotonic_ns
    while (end_ns := clock()) < t_ns:
        if os.getppid() != parent:
            sys.exit(1)
        for _ in range(SPINS_PER_CHECK):
            if clock() >= t_ns:
                break
    return end_ns


def _run_child(parent: int, cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    print("ready", flush=True)
    line = sys.stdin.readline()
    edges: list[tuple[int, int]] = []
    for begin_ns, end_ns in json.loads(line) if line else []:
        sleep_until(begin_ns)
        if os.getppid() != parent:
            sys.exit(1)
        edges.append((time.monotonic_ns(), 1))
        edges.append((_spin_until(end_ns, parent), 0))
    print(json.dumps(edges), flush=True)


if __name__ == "__main__":
    try:
        _run_child(int(sys.argv[1]), int(sys.argv[2]))
    except KeyboardInterrupt:
        sys.exit(1)
    except OSError as problem:
        sys.exit(f"load pattern on CPU {sys.argv[2]}: {problem}")
