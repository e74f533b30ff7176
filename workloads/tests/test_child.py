"""The child for measured work: its counts, its failures, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contract.strict_json import Json
from contract.tests.programs import has_ended, wait_until
from contract.tests.refusal import refuses
from workloads.base import WorkloadError
from workloads.child import ROOT, Child
from workloads.children import serving
from workloads.children.serving import GO, MissingError
from workloads.tests import contract

JOB: dict[str, Json] = {"function": "sha256", "iterations": 1, "key_bytes": 32}
LONG_JOB: dict[str, Json] = {**JOB, "iterations": 2_000_000_000}
COMMAND = [sys.executable, "-B", "-m", "workloads.children.key_derivation"]
# An agent that tells its child's number, has it work for many minutes or sit idle, and waits.
AGENT = f"""
import sys, time
from pathlib import Path
from workloads.child import Child
with Child("key_derivation", Path(sys.argv[1])) as child:
    child.ask("repeat", job={LONG_JOB}, seconds=1)
    print(child._process.pid, flush=True)
    child.go() if sys.argv[2] == "busy" else time.sleep(600)
"""


def test_a_task_is_repeated_for_seconds_but_at_least_once(root: Path) -> None:
    with Child("key_derivation", root) as child:
        laid_out = child.ask("repeat", job=JOB, seconds=0)
        once = child.outcome(child.go())
        child.ask("repeat", job=JOB, seconds=0.2)
        longer = [child.outcome(child.go()) for _ in range(2)]
    assert laid_out["job"] == JOB and laid_out["library"].startswith("OpenSSL")
    assert once["steps"] == 1
    for each in longer:
        assert each["steps"] >= 1 and each["seconds"] >= 0.2
        assert 0 < each["user_s"] + each["system_s"] <= 2 * each["seconds"]


def test_steps_are_counted_in_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    # Each step takes a millisecond, on whatever machine.
    monkeypatch.setattr("time.monotonic_ns", lambda: len(calls) * 1_000_000)
    report = serving.for_seconds(lambda: calls.append(1), 0, batch=7)
    assert report["steps"] == len(calls) == 7
    calls.clear()
    report = serving.for_seconds(lambda: calls.append(1), 0.01, batch=7)
    assert report["steps"] == len(calls) == 14
    assert json.dumps(report)


def test_calibration_gives_short_steps_large_batches() -> None:
    count, step_s = serving.calibrate(lambda: None)
    assert count > 100 and 0 < step_s < serving.BATCH_NS / serving.NS / 100
    assert serving.calibrate(lambda: sum(range(2_000_000)))[0] == 1


def test_a_child_continues_after_missing_and_failing_jobs(root: Path) -> None:
    lacking: dict[str, Json] = {
        **{"ciphers": ["sm4"], "mode": "xts", "key_bits": 256, "request_bytes": 4096},
        **{"operation": "encrypt", "threads": 1, "driver": ""},
    }
    with (
        Child("kernel_ciphers", root) as child,
        refuses("no-key-length", cipher="sm4", bits=256) as refusal,
    ):
        child.ask("repeat", job=lacking, seconds=0)
    assert isinstance(refusal.value, MissingError)
    with Child("key_derivation", root) as child:
        with refuses("no-task"):
            child.outcome(child.go())
        argon2 = {"passes": 1, "memory_kib": 1, "lanes": 1}
        try:
            child.ask("repeat", job={**JOB, "function": "argon2id", "argon2": argon2}, seconds=0)
        except MissingError as reason:
            pytest.skip(str(reason))
        failed = {"memory": "1 KiB of memory", "reason": "Memory cost is too small"}
        with refuses("argon2id-failed", library="libargon2.so.1", **failed):
            child.outcome(child.go())
        child.ask("repeat", job=JOB, seconds=0)
        assert child.outcome(child.go())["steps"] == 1


def test_a_child_continues_after_an_error_and_names_it(root: Path) -> None:
    pytest.importorskip("cryptography")
    with Child("file_ciphers", root) as child:
        for name, content in (("a", b"one"), ("b", b"two")):
            (root / name).write_bytes(content)
        with refuses("file-changed", file="a"):
            child.ask("same", first=str(root / "a"), second=str(root / "b"))
        with pytest.raises(WorkloadError, match="No such file"):
            child.ask("same", first=str(root / "a"), second=str(root / "c"))
        child.ask("same", first=str(root / "a"), second=str(root / "a"))


def test_the_next_request_discards_a_task(root: Path) -> None:
    pytest.importorskip("Cryptodome")
    which: dict[str, Json] = {"cipher": "des", "mode": "ecb"}
    with Child("cipher_modes", root) as child:
        child.ask("stream", **which, bytes=1000, encrypt=True, seed=7, seconds=0)
        child.ask("answers", **which)
        with refuses("no-task"):
            child.outcome(child.go())


def test_an_ended_child_is_an_error(root: Path) -> None:
    with Child("absent", root) as child:
        for _ in range(2):  # the second is not even written
            with refuses("child-ended", module="absent"):
                child.outcome(child.go())
            child._process.wait()


@pytest.mark.parametrize("when", ["before", "amid"])
def test_a_killed_child_is_an_error(when: str, root: Path) -> None:
    with Child("key_derivation", root) as child:
        child.ask("repeat", job=LONG_JOB if when == "amid" else JOB, seconds=0)
        killer = subprocess.Popen(
            ["sh", "-c", f"sleep {1 if when == 'amid' else 0}; kill -KILL {child._process.pid}"]
        )
        if when == "before":
            killer.wait()
            child._process.wait()
        answer = child.go()
        killer.wait()
        with refuses("child-ended", words="(status -9): no output."):
            child.outcome(answer)
    assert contract.processes_using(root) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("state", ["busy", "idle"])
def test_a_child_dies_with_its_killed_parent(
    state: str, number: signal.Signals, root: Path
) -> None:
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(root), state], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    with agent:
        assert agent.stdout
        pid = int(agent.stdout.readline())
        if state == "busy":
            until_busy(pid)
        agent.send_signal(number)
    wait_until(lambda: has_ended(pid))


@pytest.mark.parametrize("error", [WorkloadError, KeyboardInterrupt])
def test_a_child_amid_a_task_is_killed_on_leaving(error: type[BaseException], root: Path) -> None:
    with pytest.raises(error), Child("key_derivation", root) as child:
        child.ask("repeat", job=LONG_JOB, seconds=0)
        assert child._process.stdin
        os.write(child._process.stdin.fileno(), GO)
        until_busy(child._process.pid)
        raise error
    assert contract.processes_using(root) == []


def until_busy(pid: int) -> None:
    """Wait until a process has used another fifth of a second of processor time."""
    end = ticks(pid) + os.sysconf("SC_CLK_TCK") / 5
    wait_until(lambda: ticks(pid) >= end)


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_child_ends_with_its_standard_input(root: Path) -> None:
    command = [*COMMAND, str(os.getpid()), str(root)]
    assert subprocess.run(command, input=b"", cwd=ROOT, timeout=60, check=False).returncode == 0


def test_a_child_of_a_dead_parent_does_not_begin(root: Path) -> None:
    command = [*COMMAND, "1", str(root)]
    result = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=60, check=False)
    assert result.returncode != 0 and b"The parent has died." in result.stderr


def test_a_child_can_be_found_by_the_runs_folder(root: Path) -> None:
    with Child("key_derivation", root) as child:
        child.ask("repeat", job=JOB, seconds=0)
        (line,) = contract.processes_using(root)
        assert "workloads.children.key_derivation" in line
    assert contract.processes_using(root) == []
