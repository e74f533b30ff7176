"""Some answers of hostile meters; `python -m instrumentation.tests.hostile_wires` has more."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from instrumentation.decode import decode
from instrumentation.meters import registry
from instrumentation.tests.hostile_wires import MOST_MEMORY_MB, Answer, TcpServer
from instrumentation.tests.meter_helpers import read_status


def test_every_driver_comes_back_from_hostile_answers(tmp_path: Path, thorough: bool) -> None:
    """In a process of its own, whose memory is all theirs."""
    count, out = 100 if thorough else 12, tmp_path / "figures.json"
    argv = [sys.executable, "-m", "instrumentation.tests.hostile_wires"]
    done = subprocess.run(
        [*argv, "--count", str(count), "--out", str(out)], stdout=subprocess.DEVNULL, check=False
    )
    figures = json.loads(out.read_text())
    assert done.returncode == 0 and figures["memory_mb"] <= MOST_MEMORY_MB
    assert all(sum(ended.values()) == count for ended in figures["outcomes"].values())
    assert set(figures["outcomes"]) == set(registry.kinds()) - {"ipmi"}


@contextmanager
def served(answer: Answer) -> Iterator[int]:
    server = TcpServer(answer, Random(0))
    try:
        yield server.port
    finally:
        server.close()


def a_recorder(port: int, out: Path) -> subprocess.Popen[str]:
    entry = {
        "name": "meter0",
        "kind": "scpi",
        "port": f"TCPIP::127.0.0.1::{port}::SOCKET",
        "origin": "modelled",
        "channels": {"0": "system"},
        "settings": {"query": "P?", "period_s": 0.1, "resolution_w": 0.1},
    }
    argv = [sys.executable, "-m", "instrumentation.recorder", "--meter", json.dumps(entry)]
    return subprocess.Popen([*argv, "--out", str(out)], stderr=subprocess.PIPE, text=True)


def wait_until(out: Path, process: subprocess.Popen[str], state: str, least_epoch: int = 0) -> None:
    """Wait until the recorder is in this state; fail where it has ended before."""
    while True:
        status = read_status(out / "status.json")
        if status is not None and status.state == state and status.epoch >= least_epoch:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.mark.parametrize("piece", [b"1" * 65_536, b""])
def test_a_meter_that_turns_hostile_is_lost_found_and_leaves_a_gap(
    piece: bytes, tmp_path: Path
) -> None:
    """A line that never ends, and silence; then the recorder ends when it is told to."""
    good = [True]

    def answer(_: Random) -> Iterator[bytes]:
        yield b"5.5\n" if good[0] else piece
        while piece and not good[0]:
            yield piece

    with served(answer) as port:
        process = a_recorder(port, tmp_path)
        wait_until(tmp_path, process, "recording")
        good[0] = False
        wait_until(tmp_path, process, "lost")
        good[0] = True
        wait_until(tmp_path, process, "recording", 2) if piece else None
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "stopped"
    samples = decode(tmp_path).samples
    again = samples.filter(samples["epoch"] > 1)["flags"]
    assert not len(again) or "gap" in again[0].split()


BLOCKED = """
import time
from instrumentation.recorder import OverdueError, Turns
with Turns() as turns:
    for _ in range(2):
        try:
            turns.begin()
            print("blocked", flush=True)
            time.sleep(1000)
        except OverdueError:
            print("interrupted", flush=True)
"""


def test_a_turn_that_never_ends_is_interrupted_by_sigterm_and_then_ended() -> None:
    argv = [sys.executable, "-c", BLOCKED]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "blocked\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "interrupted\nblocked\n"
    assert process.returncode == 1
