"""`virtual-opal-drive` as storage developers start it, and what it says about what is wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from drive import options
from drive.control import ask
from drive.options import UsageError
from drive.state import parse
from drive.tests.process import run
from drive.tests.started import Started


def refusal(directory: Path, *words: str) -> tuple[int, str]:
    """Exit status and the one sentence of a drive that does not start."""
    code, out, sentence = run(directory, *words)
    assert out == "" and sentence.startswith("fde: ") and sentence.count("\n") == 1, sentence
    return code, sentence


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Started]:
    started = Started(tmp_path, "disk.img", "--size", "16M", "--opal")
    yield started
    started.stop()


def test_an_image_and_a_size_are_enough(drive: Started, tmp_path: Path) -> None:
    label = (tmp_path / "disk.img.psid").read_text()
    assert len(label) == 32 and label.isalnum(), "as cryptsetup takes it from a key file"
    assert label not in drive.greeting, "where it is, not what it is"
    assert (
        "disk.img.psid" in drive.greeting
        and "sudo nvme connect -t tcp -a 127.0.0.1" in drive.greeting
    )
    host = drive.connect()
    assert host.identify(1)[24:64].rstrip() == b"virtual-drive-opal"
    serial = host.identify(1)[4:24]
    assert ask(tmp_path / "disk.img.control", "status")["opal"] is True
    host.close()
    drive.stop()
    assert {path.name for path in tmp_path.iterdir()} >= {"disk.img", "disk.img.state"}
    assert not (tmp_path / "disk.img.control").exists()
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    again = Started(tmp_path, "disk.img", "--opal")
    assert again.connect().identify(1)[4:24] == serial, "the same disk to its hosts"
    again.stop(signal.SIGTERM)


def test_a_key_of_128_bits_is_a_choice_at_the_beginning(tmp_path: Path) -> None:
    Started(tmp_path, "a.img", "--size", "1M", "--opal", "--key-bits", "128").stop()
    assert parse((tmp_path / "a.img.state").read_bytes()).key_bits == 128
    Started(tmp_path, "a.img", "--opal").stop()
    code, sentence = refusal(tmp_path, "a.img", "--opal", "--key-bits", "256")
    assert code == 2 and "128-bit keys" in sentence


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("64K", 65536), ("2M", 2 << 20), ("3g", 3 << 30), ("1TiB", 1 << 40)],
)
def test_sizes_have_units(tmp_path: Path, text: str, size: int) -> None:
    assert options.parse([str(tmp_path / "x"), "--size", text]).size_bytes == size


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name one image file"),
        (["a", "--backing", "b"], "name one image file"),
        (["new.img"], "new.img is not there yet; give its --size"),
        (["a", "--size", "big"], "big is not a size such as 64M"),
        (["a", "--size", "5000"], "multiple of 4096"),
        (["a", "--size", "0"], "positive multiple"),
        (["a", "--size", "9999999999T"], "up to 1024T"),
        (["a", "--size", "1M", "--block-size", "520"], "invalid choice"),
        (["a", "--size", "1M", "--port", "70000"], "not a port"),
        (["a", "--size", "1M", "--state", "s"], "--state needs --opal"),
        (["a", "--size", "1M", "--key-bits", "128"], "--key-bits needs --opal"),
        (["a", "--size", "1M", "--block-sid-feature"], "--block-sid-feature needs --opal"),
        (["a", "--size", "1M", "--serial", ""], "--serial must be 1 to 20"),
        (["a", "--size", "1M", "--serial", "x" * 21], "--serial must be 1 to 20"),
        (["a", "--size", "1M", "--nqn", "n" * 224], "--nqn must be"),
        (["a", "--size", "1M", "--sparse"], "unrecognized arguments: --sparse; "),
    ],
)  # fmt: skip
def test_wrong_options_get_a_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        options.parse(words)
    assert sentence in str(caught.value)


def test_another_drive_cannot_use_a_running_drives_files(drive: Started, tmp_path: Path) -> None:
    for words in (["disk.img"], ["disk.img", "--opal"], ["b.img", "--size", "1M", "--opal"]):
        other_state = ["--state", "disk.img.state"] if words[0] == "b.img" else []
        code, sentence = refusal(tmp_path, *words, *other_state, "--control", "other")
        assert code == 1 and "is in use by another drive; stop that one first" in sentence
    drive.connect().close()
    assert ask(tmp_path / "disk.img.control", "status")["ok"], "its socket is still there"


def test_a_wrong_size_ends_with_status_2_and_creates_nothing(tmp_path: Path) -> None:
    code, sentence = refusal(tmp_path, "disk.img", "--size", "big")
    assert code == 2 and "big is not a size" in sentence
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, sentence = refusal(tmp_path, "disk.img", "--size", "1M", "--port", port)
    assert code == 2 and f"port {port} is in use; choose another" in sentence


@pytest.mark.parametrize(
    ("image", "words", "message"),
    [
        (bytes(8192), ["disk.img"], "disk.img has 8192 bytes, not the 1048576 asked for"),
        (None, ["disk.img"], "disk.img"),  # a folder
        (b"", ["disk.img", "--control", "c" * 108], "too long for a socket"),
        (b"", ["nowhere/disk.img", "--opal"], r"nowhere/disk\.img.*: No such file"),
    ],
    ids=["another size", "folder", "long socket path", "missing folder"],
)
def test_an_unusable_path_is_refused_with_its_name(
    tmp_path: Path, image: bytes | None, words: list[str], message: str
) -> None:
    if image is None:
        (tmp_path / "disk.img").mkdir()
    else:
        (tmp_path / "disk.img").write_bytes(image)
    code, sentence = refusal(tmp_path, *words, "--size", "1M")
    assert code == 1 and re.search(message, sentence)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--size", "1M"], 2, "disk.img is not; bring the image back"),
        (["--block-size", "512"], 1, "256 sectors of 4096 bytes, not 2048 of 512"),
    ],
    ids=["missing image", "another block size"],
)
def test_a_state_that_does_not_match_the_image_is_refused_unchanged(
    tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    Started(tmp_path, "disk.img", "--size", "1M", "--opal").stop()
    image, state = tmp_path / "disk.img", tmp_path / "disk.img.state"
    if code == 2:
        image.unlink()
    before = state.read_bytes()
    status, sentence = refusal(tmp_path, "disk.img", "--opal", *words)
    assert status == code and message in sentence
    assert state.read_bytes() == before and image.exists() is (code == 1)


def test_data_without_its_state_is_refused_unchanged(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(b"data".ljust(1 << 20, b"\0"))
    code, sentence = refusal(tmp_path, "disk.img", "--opal")
    assert code == 2 and "holds data but disk.img.state is missing" in sentence
    assert "disk.img.state" not in {path.name for path in tmp_path.iterdir()}
    assert image.read_bytes().startswith(b"data")


def test_an_aborted_drive_dumps_no_core(tmp_path: Path) -> None:
    drive = Started(tmp_path, "disk.img", "--size", "1M", "--opal")
    limits = Path(f"/proc/{drive.process.pid}/limits").read_text()
    drive.process.send_signal(signal.SIGABRT)
    ended = os.waitid(os.P_PID, drive.process.pid, os.WEXITED | os.WNOWAIT)
    assert drive.process.wait(30) == -signal.SIGABRT and drive.process.stdout is not None
    drive.process.stdout.close()
    assert ended is not None and ended.si_code == os.CLD_KILLED, "killed, and not dumped"
    core = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]
