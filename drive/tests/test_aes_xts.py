"""The compiled cipher loop: how it is made, and what it does at its edges."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drive import aes_xts
from drive.aes_xts import AesXts, CryptoError, shared_object
from drive.tests.process import REPOSITORY, Drive, run

MAKE_ONE = "from drive.aes_xts import AesXts; AesXts(bytes(range(64)), 512); print('made')"


def test_nothing_beyond_the_sectors_is_touched() -> None:
    cipher, buffer = AesXts(os.urandom(64), 512), bytearray(b"\xa5" * 8 * 512)
    for offset in (1, 512, 517):  # any alignment
        view = memoryview(buffer)[offset : offset + 3 * 512]
        cipher.encrypt(7, view)
        assert buffer[:offset].strip(b"\xa5") == b"" == buffer[offset + 3 * 512 :].strip(b"\xa5")
        assert b"\xa5" * 16 not in view.tobytes()
        cipher.decrypt(7, view)
        assert buffer.strip(b"\xa5") == b""
    cipher.encrypt(7, memoryview(buffer)[:0])
    assert buffer.strip(b"\xa5") == b""


def test_part_of_a_sector_and_a_weak_key_are_refused() -> None:
    cipher, data = AesXts(os.urandom(64), 512), bytearray(700)
    with pytest.raises(ValueError):
        cipher.encrypt(0, memoryview(data))
    assert data == bytes(700)
    for key in (bytes(64), b"too short"):  # equal halves; no such length
        with pytest.raises(CryptoError):
            AesXts(key, 512)


def test_the_last_possible_address_has_a_different_tweak() -> None:
    cipher = AesXts(os.urandom(64), 512)
    last, first = bytearray(512), bytearray(1024)
    cipher.encrypt(2**64 - 1, memoryview(last))
    cipher.encrypt(0, memoryview(first))
    assert last not in (first[:512], first[512:]) and last != bytes(512)


def test_threads_share_a_cipher() -> None:
    cipher = AesXts(os.urandom(64), 512)
    data = [os.urandom(64 * 512) for _ in range(8)]
    expected = [bytearray(part) for part in data]
    for index, part in enumerate(expected):
        cipher.encrypt(1000 * index, memoryview(part))
    begin = threading.Barrier(len(data))

    def work(index: int) -> bytearray:
        buffer = bytearray(data[index])
        begin.wait()
        for _ in range(100):
            cipher.encrypt(1000 * index, memoryview(buffer))
            cipher.decrypt(1000 * index, memoryview(buffer))
        cipher.encrypt(1000 * index, memoryview(buffer))
        return buffer

    with ThreadPoolExecutor(len(data)) as pool:
        assert list(pool.map(work, range(len(data)))) == expected


def test_drives_that_start_at_once_make_one_object(tmp_path: Path) -> None:
    environment = {**os.environ, "VIRTUAL_DRIVE_CACHE": str(tmp_path / "cache")}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE_ONE],
            cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    assert [process.communicate(timeout=120)[0] for process in started] == ["made\n"] * 3
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".so"]


def test_another_source_is_another_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = shared_object(tmp_path)
    source = tmp_path / "xts.c"
    source.write_text(aes_xts._SOURCE.read_text() + "\n")
    monkeypatch.setattr(aes_xts, "_SOURCE", source)
    assert shared_object(tmp_path) != before


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        (None, "there is no cc"),
        ("echo 'xts.c: fatal error: openssl/evp.h: No such file' >&2; exit 1", "openssl/evp.h"),
    ],
    ids=["no compiler", "no header"],
)
def test_a_missing_compiler_or_header_is_named_before_the_drive_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str | None, reason: str
) -> None:
    if compiler is not None:
        program = tmp_path / "cc"
        program.write_text(f"#!/bin/sh\n{compiler}\n")
        program.chmod(0o755)
    monkeypatch.setenv("VIRTUAL_DRIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, sentence = run(tmp_path, "disk.img", "--size", "1M", "--opal")
    assert code == 1 and sentence.startswith("fde: ") and sentence.count("\n") == 1, sentence
    assert reason in sentence and "gcc, libc6-dev and libssl-dev" in sentence
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(CryptoError, match="VIRTUAL_DRIVE_CACHE"):
        shared_object(file / "cache")


def test_a_plain_disk_needs_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_drive: Callable[..., Drive]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("VIRTUAL_DRIVE_CACHE", str(tmp_path / "cache"))
    assert make_drive(opal=False).io().read(0, 1).status == 0
    assert not (tmp_path / "cache").exists()
