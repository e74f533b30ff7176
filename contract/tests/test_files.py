"""Atomic writing of files: modes, concurrent writers, failures."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from contract import files


@pytest.mark.parametrize(
    ("umask", "mode", "expected"), [(0o022, 0o644, 0o644), (0o077, 0o644, 0o600), (0, 0o600, 0o600)]
)
def test_a_files_mode_is_the_mode_less_the_umask(
    tmp_path: Path, umask: int, mode: int, expected: int
) -> None:
    before = os.umask(umask)
    try:
        files.write(tmp_path / "x", [b"new"], mode)
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == expected


def test_concurrent_writers_do_not_share_a_temporary_file(tmp_path: Path) -> None:
    """The last writer to finish determines the content."""
    inner = tmp_path / "x"

    def pieces(depth: int) -> Iterator[bytes]:
        yield b"%d " % depth
        if depth:
            files.write(inner, pieces(depth - 1))
        yield b"whole"

    files.write(inner, pieces(2))
    assert inner.read_bytes() == b"2 whole"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("no more")

    files.write(tmp_path / "x", [b"old"])
    with pytest.raises(ValueError):
        files.write(tmp_path / "x", pieces())
    assert (tmp_path / "x").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_error_names_the_target_file(tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised:
        files.write(tmp_path / "none" / "x", [b"new"])
    assert raised.value.filename == str(tmp_path / "none" / "x")


@pytest.mark.parametrize(("number", "raised"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_cannot_flush_names_is_accepted(
    number: int, raised: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError) if raised else nullcontext():
        files.sync_path(tmp_path)


def test_polars_is_given_a_file_if_its_name_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9")
    path.write_bytes(b"x")
    opened = files.for_polars(path)
    assert not isinstance(opened, Path)
    with opened:
        assert opened.read() == b"x"
    assert files.for_polars(tmp_path) == tmp_path
