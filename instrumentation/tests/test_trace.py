"""Test the raw stream: whole frames are read back after any damage of the end."""

from __future__ import annotations

from itertools import accumulate, count
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.tests.refusal import refuses
from instrumentation.trace import Frame, Pieces, StreamError, StreamWriter, read_pieces
from validation.metrology.conversation import read_frames

TIMES = st.integers(1, 2**63 - 1)
FRAMES = st.lists(st.builds(Frame, TIMES, st.binary(max_size=40), st.booleans()), max_size=8)


def write(path: Path, frames: list[Frame]) -> StreamWriter:
    writer = StreamWriter(path)
    for frame in frames:
        writer.append(frame.t_mono_ns, frame.data, sent=frame.sent)
    writer.close()
    return writer


def whole_frames(frames: list[Frame], size_bytes: int) -> list[Frame]:
    """Return the frames that are whole within a number of bytes."""
    ends = accumulate(12 + len(frame.data) for frame in frames)
    return [frame for frame, end in zip(frames, ends, strict=True) if end <= size_bytes]


@given(frames=FRAMES, later=FRAMES, cut=st.integers(0, 400))
def test_a_cut_stream_keeps_its_whole_frames(
    tmp_path_factory: pytest.TempPathFactory, frames: list[Frame], later: list[Frame], cut: int
) -> None:
    path = tmp_path_factory.mktemp("stream") / "stream.raw"
    write(path, frames)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: max(0, size - cut)])
    saved = list(read_frames(path))
    assert saved == whole_frames(frames, size - cut)
    writer = write(path, later)  # continues after the last whole frame
    assert list(read_frames(path)) == saved + later
    assert writer.openings == sum(not frame.data for frame in saved)


def test_frames_have_the_documented_layout(tmp_path: Path) -> None:
    path = tmp_path / "stream.raw"
    write(path, [Frame(0x0102030405060708, b"ab"), Frame(1, b"?", sent=True)])
    received = bytes.fromhex("0807060504030201 02000000") + b"ab"
    assert path.read_bytes() == received + bytes.fromhex("0100000000000000 01000080") + b"?"


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "stream.raw"
    path.write_bytes(b"this is not a meter stream of a meter")
    with refuses("not-a-stream"):
        list(read_frames(path))
    with pytest.raises(StreamError):
        StreamWriter(path)
    assert path.read_bytes() == b"this is not a meter stream of a meter"


@given(
    runs=st.lists(
        st.tuples(st.integers(0, 90), st.integers(0, 30), st.booleans()), min_size=1, max_size=8
    ),
    read_bytes=st.sampled_from([64, 500, 1 << 22]),
    cut=st.integers(0, 60),
)
def test_frames_of_any_size_are_read_back_in_pieces(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[tuple[int, int, bool]],
    read_bytes: int,
    cut: int,
) -> None:
    path = tmp_path_factory.mktemp("stream") / "stream.raw"
    numbers = count(1)
    frames = [
        Frame(next(numbers), bytes([n % 251] * size), sent)
        for n, (times, size, sent) in enumerate(runs)
        for _ in range(times)
    ]
    write(path, frames)
    size = path.stat().st_size - cut
    path.write_bytes(path.read_bytes()[: max(0, size)])
    collected: list[Frame] = []
    with patch("instrumentation.trace._READ_BYTES", read_bytes):
        for part in read_pieces(path):
            collected += part if isinstance(part, Pieces) else [part]
            assert not isinstance(part, Frame) or part.sent or not part.data
    assert collected == whole_frames(frames, size)


@pytest.mark.parametrize("before", [0, 1, 40])
def test_a_negative_time_is_refused(tmp_path: Path, before: int) -> None:
    path = tmp_path / "stream.raw"
    frames = [Frame(number, b"ab") for number in range(before)]
    write(path, [*frames, *[Frame(-5, b"ab")] * 40])
    with refuses("not-a-stream"):
        list(read_pieces(path))


def test_zeros_at_the_end_are_ignored(tmp_path: Path) -> None:
    """After a power cut a file may have its full length and end in zeros."""
    path = tmp_path / "stream.raw"
    frames = [Frame(5, b""), Frame(6, b"ab")]
    write(path, frames)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(5000))
    assert list(read_frames(path)) == frames
    received = [part for part in read_pieces(path) if not isinstance(part, Frame)]
    assert [piece.data for piece in received] == [b"ab"]
    writer = StreamWriter(path)
    assert writer.openings == 1
    assert writer.size_bytes == size
    writer.append(7, b"c")
    writer.close()
    assert list(read_frames(path)) == [*frames, Frame(7, b"c")]
