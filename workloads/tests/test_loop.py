"""The child that repeats measured work: what it counts, how it fails, and that it never stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from workloads.base import WorkloadError
from workloads.loop import ROOT, Loop

JOB = {"function": "sha256", "iterations": 1, "key_bytes": 32}
# Starts a loop with a step of many minutes, says its number and waits for it.
PARENT = """
from workloads.loop import Loop
with Loop("key_derivation") as child:
    child.prepare({"function": "sha256", "iterations": 2_000_000_000, "key_bytes": 32})
    print(child._process.pid, flush=True)
    child.run(1)
"""


def test_a_loop_repeats_for_as_long_as_it_is_told_and_at_least_once() -> None:
    with Loop("key_derivation") as child:
        assert child.prepare(JOB) is None
        once = child.run(0)
        longer = child.run(0.2)
    assert once["steps"] == 1
    assert longer["steps"] > 1 and longer["seconds"] >= 0.2
    assert longer["user_s"] + longer["system_s"] <= 2 * longer["seconds"]


def test_what_is_missing_and_what_fails_are_told_and_the_loop_goes_on() -> None:
    lacking = {"ciphers": ["sm4"], "mode": "xts", "key_bits": 256, "request_bytes": 4096}
    with Loop("kernel_ciphers") as child:
        reason = child.prepare({**lacking, "operation": "encrypt"})
    assert reason and reason.startswith("sm4 has no keys of 256 bits")
    with Loop("key_derivation") as child:
        cost = {"passes": 1, "memory_kib": 1, "lanes": 1}
        if reason := child.prepare({**JOB, **cost, "function": "argon2id"}):
            pytest.skip(reason)
        with pytest.raises(WorkloadError, match=r"libargon2.* failed with 1 KiB of memory"):
            child.run(0)
        assert child.prepare(JOB) is None
        assert child.run(0)["steps"] == 1


def test_a_loop_that_dies_is_an_error_with_its_last_words() -> None:
    with (
        pytest.raises(WorkloadError, match=r"The loop absent ended: .*No module named"),
        Loop("absent") as child,
    ):
        child.prepare(JOB)
    with Loop("key_derivation") as child:
        child.prepare(JOB)
        child._process.kill()
        child._process.wait()
        with pytest.raises(WorkloadError, match="ended: status -9, without a word"):
            child.run(1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_loop_dies_with_its_parent_in_the_midst_of_a_step(number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        parent.send_signal(number)
    try:
        for _ in range(100):
            if not alive(child):
                break
            time.sleep(0.1)
        assert not alive(child)
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
