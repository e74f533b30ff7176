"""The one writer of whole files: what a reader, a full disk or another user may see of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import files


@pytest.mark.parametrize(
    ("umask", "mode", "wanted"), [(0o022, 0o644, 0o644), (0o077, 0o644, 0o600), (0, 0o600, 0o600)]
)
def test_no_more_may_read_it_than_the_umask_and_the_mode_let(
    tmp_path: Path, umask: int, mode: int, wanted: int
) -> None:
    before = os.umask(umask)
    try:
        files.write(tmp_path / "x", [b"new"], mode)
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == wanted


def test_several_may_write_one_file_at_once(tmp_path: Path) -> None:
    """Each finds its own temporary file as it left it, and the last of them stands whole."""
    inner = tmp_path / "x"

    def pieces(depth: int) -> Iterator[bytes]:
        yield b"%d " % depth
        if depth:
            files.write(inner, pieces(depth - 1))
        yield b"whole"

    files.write(inner, pieces(2))
    assert inner.read_bytes() == b"2 whole"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_where_it_fails_the_old_file_stands_alone(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("no more")

    files.write(tmp_path / "x", [b"old"])
    with pytest.raises(ValueError):
        files.write(tmp_path / "x", pieces())
    assert (tmp_path / "x").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_error_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised:
        files.write(tmp_path / "none" / "x", [b"new"])
    assert raised.value.filename == str(tmp_path / "none" / "x")
