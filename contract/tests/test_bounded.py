"""Programs whose output does not end, on either pipe."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from contract import bounded

MIB = 1 << 20


def test_a_program_reads_stdin_and_returns_both_outputs() -> None:
    content = b"x" * MIB
    result = bounded.run(["sh", "-c", "cat; echo why >&2; exit 3"], content)
    assert (result.returncode, result.stdout, result.stderr) == (3, content, b"why")
    assert bounded.run(["true"], content).returncode == 0  # which reads none of it


def test_endless_output_is_cut_off_and_fails(tmp_path: Path) -> None:
    endless = ["cat", "/dev/zero"]
    result = bounded.run(endless, most_bytes=MIB)
    assert (result.returncode, result.stdout) == (bounded.FAILED, b"")
    assert result.stderr.decode().startswith(bounded.TOO_LONG)
    with (tmp_path / "archive").open("wb") as out:
        assert bounded.run(endless, most_bytes=MIB, out=out).returncode == bounded.FAILED
    assert (tmp_path / "archive").stat().st_size <= MIB
    result = bounded.run(["sh", "-c", "head -c 4000000 /dev/zero >&2; echo last >&2"])
    assert len(result.stderr) <= bounded.MOST_WORDS_BYTES and result.stderr.endswith(b"last")


def test_a_lower_limit_of_the_user_stays() -> None:
    code = (
        "import resource as r; from contract import bounded\n"
        "bounded.lower_limits({r.RLIMIT_CPU: 60, r.RLIMIT_CORE: 0, r.RLIMIT_FSIZE: 1 << 30})\n"
        "print(*(r.getrlimit(n) for n in (r.RLIMIT_CPU, r.RLIMIT_CORE, r.RLIMIT_FSIZE)))"
    )
    script = f"ulimit -H -t 50; ulimit -S -t 40; {sys.executable} -c '{code}'"
    printed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout == "(40, 40) (0, 0) (1073741824, 1073741824)\n"


def test_a_time_limit_includes_background_children() -> None:
    for script in ("sleep 100", "sleep 100 & exit 0", "cat /dev/zero >&2"):
        with pytest.raises(subprocess.TimeoutExpired):
            bounded.run(["sh", "-c", script], limit_s=0.5)


def test_a_too_long_line_raises_after_the_lines_before() -> None:
    stream = io.BytesIO(b"a\n" + b"b" * 9 + b"\n" + b"c" * 10)
    lines = bounded.lines(stream, 9)
    assert next(lines) == "a\n"
    with pytest.raises(bounded.TooLongError):
        next(lines)
