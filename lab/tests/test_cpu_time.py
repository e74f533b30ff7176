"""CPU time of a process tree: nothing is lost when children end, and nothing counts twice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.power_model import TICK_NS, PowerLostError, ProcessTree

# A parent that burns 0.1 s, then starts children one after another which burn as much and end; it
# says what all have used by its own account, then waits for a word before it ends.
PARENT = """
import os, resource, subprocess, sys, time

def burn():
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass

burn()
for _ in range(5):
    child = os.fork()
    if not child:
        burn()
        os._exit(0)
    os.waitpid(child, 0)
used = sum(
    usage.ru_utime + usage.ru_stime
    for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
)
print(used, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_children_that_ended_still_count_and_none_counts_twice(
    parent: subprocess.Popen[str],
) -> None:
    tree = ProcessTree(parent.pid)
    assert parent.stdout is not None
    os.set_blocking(parent.stdout.fileno(), False)
    seen_ns = [tree.read_ns()]
    while not (output := parent.stdout.readline()):
        seen_ns.append(tree.read_ns())
        time.sleep(0.002)
    used_ns = float(output) * 1e9
    assert seen_ns == sorted(seen_ns)
    assert abs(tree.read_ns() - used_ns) < 3 * TICK_NS
    tree.close()


def test_a_process_that_is_gone_has_lost_its_power(parent: subprocess.Popen[str]) -> None:
    tree = ProcessTree(parent.pid)
    tree.read_ns()
    parent.kill()
    while Path(f"/proc/{parent.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    with pytest.raises(PowerLostError):
        tree.read_ns()
    parent.wait()
    with pytest.raises(PowerLostError):
        tree.read_ns()
    with pytest.raises(OSError):
        ProcessTree(parent.pid)
