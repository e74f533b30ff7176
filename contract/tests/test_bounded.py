"""Programs whose output does not end, on either pipe."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest

from contract import bounded

MIB = 1 << 20


def test_a_program_gets_its_input_and_gives_its_answer() -> None:
    content = b"x" * MIB
    done = bounded.run(["sh", "-c", "cat; echo why >&2; exit 3"], content)
    assert (done.returncode, done.stdout, done.stderr) == (3, content, b"why")
    assert bounded.run(["true"], content).returncode == 0  # which reads none of it


def test_an_answer_without_end_is_none(tmp_path: Path) -> None:
    endless = ["cat", "/dev/zero"]
    done = bounded.run(endless, most_bytes=MIB)
    assert (done.returncode, done.stdout) == (bounded.FAILED, b"")
    assert done.stderr.decode().startswith(bounded.TOO_LONG)
    with (tmp_path / "archive").open("wb") as out:
        assert bounded.run(endless, most_bytes=MIB, out=out).returncode == bounded.FAILED
    assert (tmp_path / "archive").stat().st_size <= MIB
    done = bounded.run(["sh", "-c", "head -c 4000000 /dev/zero >&2; echo last >&2"])
    assert len(done.stderr) <= bounded.MOST_WORDS_BYTES and done.stderr.endswith(b"last")


def test_a_limit_of_time_holds_for_what_a_program_leaves_behind() -> None:
    for script in ("sleep 100", "sleep 100 & exit 0", "cat /dev/zero >&2"):
        with pytest.raises(subprocess.TimeoutExpired):
            bounded.run(["sh", "-c", script], limit_s=0.5)


def test_lines_are_read_up_to_one_that_is_too_long() -> None:
    stream = io.BytesIO(b"a\n" + b"b" * 9 + b"\n" + b"c" * 10)
    lines = bounded.lines(stream, 9)
    assert next(lines) == "a\n"
    with pytest.raises(bounded.TooLongError):
        next(lines)
