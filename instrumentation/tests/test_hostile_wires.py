"""Some answers of hostile meters; `python -m instrumentation.tests.hostile_wires` has more."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from instrumentation.decode import decode
from instrumentation.meters import registry
from instrumentation.tests.hostile_wires import MOST_MEMORY_MB, Answer, TcpServer
from instrumentation.tests.meter_helpers import Running, an_entry


def test_every_driver_returns_from_hostile_answers(tmp_path: Path, thorough: bool) -> None:
    """Run in a separate process, so that its memory is only theirs."""
    count, out = 100 if thorough else 12, tmp_path / "figures.json"
    argv = [sys.executable, "-m", "instrumentation.tests.hostile_wires"]
    process = subprocess.run(
        [*argv, "--count", str(count), "--out", str(out)], stdout=subprocess.DEVNULL, check=False
    )
    figures = json.loads(out.read_text())
    assert process.returncode == 0 and figures["memory_mb"] <= MOST_MEMORY_MB
    assert all(sum(ended.values()) == count for ended in figures["outcomes"].values())
    assert set(figures["outcomes"]) == set(registry.kinds()) - {"ipmi"}


@contextmanager
def served(answer: Answer) -> Iterator[int]:
    server = TcpServer(answer, Random(0))
    try:
        yield server.port
    finally:
        server.close()


@pytest.mark.parametrize("piece", [b"1" * 65_536, b""])
def test_a_meter_that_turns_hostile_is_lost_and_reopened_with_a_gap(
    piece: bytes, tmp_path: Path
) -> None:
    """An endless line, or silence; then the recorder ends on its signal."""
    good = [True]

    def answer(_: Random) -> Iterator[bytes]:
        yield b"5.5\n" if good[0] else piece
        while piece and not good[0]:
            yield piece

    with served(answer) as port:
        settings = {"query": "P?", "period_s": 0.1, "resolution_w": 0.1}
        address = f"TCPIP::127.0.0.1::{port}::SOCKET"
        named = {"channels": {"0": "system"}, "settings": settings}
        running = Running(an_entry(address, "scpi", **named), tmp_path)
        running.wait_until(lambda status: status.state == "recording")
        good[0] = False
        running.wait_until(lambda status: status.state == "lost")
        good[0] = True
        if piece:
            running.wait_until(lambda status: status.state == "recording" and status.epoch >= 2)
        running.process.send_signal(signal.SIGTERM)
        assert running.end()[0] == 0
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


def test_a_hanging_turn_is_interrupted_by_sigterm_then_ended() -> None:
    argv = [sys.executable, "-c", BLOCKED]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "blocked\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "interrupted\nblocked\n"
    assert process.returncode == 1
