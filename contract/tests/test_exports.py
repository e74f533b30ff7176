"""Output paths of a person: files, links, devices, pipes, a full disk."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from contract import exports
from contract.interrupts import ENDING
from contract.places import ROOT

FULL = Path("/dev/full")


def test_a_file_is_replaced_whole_through_links_and_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    with real.open("rb") as reader:
        exports.export(link, [b"new"])
        assert reader.read() == b"old"
    assert link.is_symlink() and real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "made")
    exports.export(dangling, [b"new"])
    assert (tmp_path / "made").read_bytes() == b"new" and dangling.is_symlink()


def test_a_device_is_written_to_not_replaced(tmp_path: Path) -> None:
    null = tmp_path / "null"
    null.symlink_to(os.devnull)
    for path in (null, Path(os.devnull)):
        exports.require_writable(path, 1)
        exports.export(path, [b"x"])
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode) and null.is_symlink()
    with pytest.raises(OSError) as full:
        exports.export(FULL, [b"x"])
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, "/dev/full")


def test_a_named_pipe_is_written_after_a_reader_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, received = tmp_path / "pipe", bytearray()
    os.mkfifo(pipe)
    data = os.urandom(1 << 18)  # more than it holds
    exports.require_writable(pipe, 1)
    reader = threading.Thread(target=lambda: received.extend(pipe.read_bytes()))
    reader.start()
    exports.export(pipe, [data[:7], data[7:]])
    reader.join()
    assert bytes(received) == data and stat.S_ISFIFO(pipe.stat().st_mode)
    monkeypatch.setattr(exports, "READER_LIMIT_S", 0.0)
    with pytest.raises(OSError) as unread:
        exports.export(pipe, [b"x"])
    assert unread.value.errno == errno.ENXIO


OWN = """
import sys
from pathlib import Path
from contract import exports
print("first", flush=True)
exports.export(Path(sys.argv[1]), [b"second\\n"])
print("third", flush=True)
"""


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "out"])
def test_an_own_descriptor_is_appended_to(path: str, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        subprocess.run(
            [sys.executable, "-c", OWN, path],
            stdout=out,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
        )
    assert (tmp_path / "out").read_text() == "first\nsecond\nthird\n"
    assert Path("/dev/stdout").is_symlink()


LIMITED = """
import resource, sys
from pathlib import Path
from contract import exports
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # a disk with so much room
exports.require_writable(Path(sys.argv[1]), 4096)
try:
    exports.require_writable(Path(sys.argv[1]), 4097)
except OSError as error:
    print("no room:", error.filename)
"""


def test_checking_for_room_leaves_no_file(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"old")
    for path in (old, new):
        result = subprocess.run(
            [sys.executable, "-c", LIMITED, str(path)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        )
        assert result.stdout == f"no room: {path}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert old.read_bytes() == b"old"


@pytest.mark.parametrize("name", [".", "none/x"])
def test_an_unwritable_path_is_refused_beforehand(name: str, tmp_path: Path) -> None:
    with pytest.raises((IsADirectoryError, FileNotFoundError)):
        exports.require_writable(tmp_path / name, 1)
    with pytest.raises((IsADirectoryError, FileNotFoundError)):
        exports.export(tmp_path / name, [b"x"])


BLOCKED = """
import os, signal, sys
from contract import exports
reader, writer = os.pipe()
os.set_blocking(writer, False)
while True:
    try:
        os.write(writer, bytes(4096))
    except BlockingIOError:
        break
class Poll:
    def register(self, *_): pass
    def poll(self, _):
        print("waits", flush=True)  # where a signal is to come
        sys.stdin.readline()
        return []
exports.select.poll = Poll
try:
    exports.write_all(writer, b"x")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_interrupts_a_write_to_a_full_pipe(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.send_signal(number)
        process.stdin.write("go on\n" * 2)
        process.stdin.flush()
        assert process.stdout.read().endswith("interrupted\n")
    assert process.returncode == 0


def test_a_file_system_that_cannot_reserve_room_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    exports.require_writable(tmp_path / "out.json", 1)
