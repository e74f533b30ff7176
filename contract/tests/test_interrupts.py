"""A session without its terminal, and a second Ctrl-C: real processes on real terminals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

from contract.places import ROOT

LINES = """
import pathlib, sys, time
from contract.interrupts import lasting, outliving_the_terminal
say = lasting(lambda line: print(line, flush=True))
with outliving_the_terminal():
    for number in range(10**6):
        say(f"line {number}")
        pathlib.Path(sys.argv[1]).write_text(str(number))
        if pathlib.Path(sys.argv[2]).exists():
            break
        time.sleep(0.01)
print("the end", flush=True)
"""
UNINTERRUPTED = """
import sys
from contract.interrupts import uninterrupted
try:
    with uninterrupted():
        print("in", flush=True)
        sys.stdin.readline()
        print("whole", flush=True)
    print("out", flush=True)
    sys.stdin.readline()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_a_process_survives_its_closed_terminal(tmp_path: Path) -> None:
    count, enough = tmp_path / "count", tmp_path / "enough"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import os; os.setsid(); os.close(os.open({os.ttyname(theirs)!r}, os.O_RDWR)){LINES}",
            str(count),
            str(enough),
        ],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
    )
    os.close(theirs)
    while not count.exists():
        time.sleep(0.02)
    os.close(ours)  # the kernel sends SIGHUP, and every write fails from here on
    lines = int(count.read_text() or 0)
    while int(count.read_text() or 0) < lines + 20:
        assert process.poll() is None
        time.sleep(0.02)
    enough.touch()
    assert process.wait() == 0


def test_signals_are_ignored_within_uninterrupted() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", UNINTERRUPTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.stdin.write("\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == ["whole\n", "out\n"]
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
