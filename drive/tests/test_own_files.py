"""No option of the drive destroys a file that is not the drive's own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from drive.tests.started import Started
from drive.tests.test_command_line import refusal

TEXT = b"root:x:0:0:root:/root:/bin/bash\n" * 40
NEW = ("disk.img", "--size", "1M", "--opal")


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its inode and content."""
    files = [path for path in folder.iterdir() if path.is_file()]
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in files}


@pytest.mark.parametrize("content", [TEXT, TEXT[:64], bytes(64), b"7\n"], ids=len)
@pytest.mark.parametrize("option", ["--stats", "--control", "--state", "--ready-file"])
def test_a_foreign_file_is_refused_unchanged(tmp_path: Path, option: str, content: bytes) -> None:
    (tmp_path / "precious").write_bytes(content)
    before = state_of(tmp_path)["precious"]
    code, sentence = refusal(tmp_path, *NEW, option, "precious")
    assert code == 1 and "precious" in sentence and "name another" in sentence
    assert state_of(tmp_path)["precious"] == before
    if option != "--control":  # the last that is made
        assert state_of(tmp_path).keys() == {"precious"}


@pytest.mark.parametrize("option", ["--stats", "--state", "--ready-file", "--control"])
def test_neither_a_link_nor_a_folder_nor_a_device_is_taken(tmp_path: Path, option: str) -> None:
    (tmp_path / "precious").write_bytes(b"")
    (tmp_path / "link").symlink_to("precious")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder", "/dev/null"):
        code, sentence = refusal(tmp_path, *NEW, option, name)
        assert code == 1 and "name another" in sentence, sentence
    assert (tmp_path / "link").is_symlink() and (tmp_path / "precious").read_bytes() == b""


def test_a_link_to_a_state_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """Else the file that it names would keep what was erased."""
    Started(tmp_path, *NEW).stop()
    state, moved = tmp_path / "disk.img.state", tmp_path / "moved"
    state.rename(moved)
    state.symlink_to("moved")
    before = moved.read_bytes()
    code, sentence = refusal(tmp_path, "disk.img", "--opal")
    assert code == 1 and "disk.img.state is" in sentence
    assert state.is_symlink() and moved.read_bytes() == before


@pytest.mark.parametrize("end", ["mbr", "datastore"])
def test_a_foreign_file_in_a_tables_place_is_refused(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"disk.img.state.{end}"
    path.write_bytes(TEXT)
    code, sentence = refusal(tmp_path, *NEW)
    assert code == 1 and path.name in sentence
    assert path.read_bytes() == TEXT


@pytest.mark.parametrize(
    ("first", "second"),
    [("--state", "disk.img"), ("--stats", "disk.img"), ("--psid-file", "disk.img"),
     ("--control", "disk.img"), ("--ready-file", "disk.img"), ("--stats", "disk.img.state"),
     ("--ready-file", "disk.img.state.mbr"), ("--stats", "disk.img.control")],
)  # fmt: skip
def test_one_path_for_two_files_is_refused(tmp_path: Path, first: str, second: str) -> None:
    code, sentence = refusal(tmp_path, *NEW, first, second)
    assert code == 1 and "name two files" in sentence
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_in_use_is_refused(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "somebody"
    with socket.socket(socket.AF_UNIX, kind) as others:
        others.bind(str(path))
        if kind == socket.SOCK_STREAM:
            others.listen()
        inode = path.stat().st_ino
        code, sentence = refusal(tmp_path, "disk.img", "--size", "1M", "--control", "somebody")
        assert code == 1 and "name another" in sentence
        assert path.stat().st_ino == inode


def test_a_restarted_drive_reuses_its_own_files(tmp_path: Path) -> None:
    words = ("--stats", "counters", "--ready-file", "ready", "--control", "socket")
    for name in ("counters", "ready"):
        (tmp_path / name).touch()  # made empty for it
    drive = Started(tmp_path, *NEW, *words)
    drive.process.kill()  # nothing is tidied up
    drive.process.wait()
    assert {"counters", "ready", "socket"} <= {path.name for path in tmp_path.iterdir()}
    again = Started(tmp_path, "disk.img", "--opal", *words)
    code, sentence = refusal(tmp_path, "b.img", "--size", "1M", "--stats", "counters")
    assert code == 1 and "in use by another drive" in sentence
    (tmp_path / "socket").unlink()
    (tmp_path / "socket").write_bytes(TEXT)  # while it runs
    again.stop()
    assert (tmp_path / "socket").read_bytes() == TEXT
    if drive.process.stdout is not None:
        drive.process.stdout.close()
