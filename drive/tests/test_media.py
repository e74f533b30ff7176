"""The encrypted medium by itself: its segments, and the shadow before its first blocks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from drive.aes_xts import AesXts
from drive.media import AccessDeniedError, EncryptedMedia, Segment, Shadow, open_backing
from drive.stats import Stats

BLOCK = 512
BLOCKS = 4096
END = 64  # of the shadow


@pytest.fixture
def media(tmp_path: Path) -> EncryptedMedia:
    """Two open segments that meet at block 32, and a locked one from block 2048 on."""
    fd = open_backing(tmp_path / "disk", BLOCKS * BLOCK)
    medium = EncryptedMedia(fd, BLOCK, Stats(tmp_path / "stats"))
    medium.segments = (
        Segment(0, 32, True, True, AesXts(os.urandom(64), BLOCK)),
        Segment(32, 2048, True, True, AesXts(os.urandom(32), BLOCK)),
        Segment(2048, BLOCKS, False, False, None),
    )
    return medium


@pytest.fixture
def shadow(tmp_path: Path) -> Shadow:
    return Shadow(open_backing(tmp_path / "shadow", END * BLOCK), END)


def read(media: EncryptedMedia, lba: int, blocks: int) -> bytes:
    target = memoryview(bytearray(b"\xee" * blocks * BLOCK))
    media.read(lba, target)
    return target.tobytes()


def test_a_command_may_span_open_segments_only(media: EncryptedMedia) -> None:
    data = os.urandom(64 * BLOCK)
    media.write(0, memoryview(bytearray(data)))
    assert read(media, 0, 64) == data and read(media, 31, 2) == data[31 * BLOCK : 33 * BLOCK]
    for lba, blocks in ((2047, 2), (2048, 1), (BLOCKS - 1, 1)):
        with pytest.raises(AccessDeniedError):
            read(media, lba, blocks)


def test_the_shadow_is_read_in_the_place_of_the_first_blocks(
    media: EncryptedMedia, shadow: Shadow
) -> None:
    data, image = os.urandom(2 * END * BLOCK), os.urandom(END * BLOCK)
    media.write(0, memoryview(bytearray(data)))
    os.pwrite(shadow.fd, image, 0)
    media.shadow = shadow
    assert read(media, 0, END) == image
    assert read(media, END - 1, 1) == image[-BLOCK:]
    assert read(media, END, END) == data[END * BLOCK :]
    media.shadow = None
    assert read(media, 0, 2 * END) == data


def test_the_shadow_is_seen_though_the_range_is_locked(
    media: EncryptedMedia, shadow: Shadow
) -> None:
    media.segments = (Segment(0, BLOCKS, False, False, None),)
    with pytest.raises(AccessDeniedError):
        read(media, 0, 1)
    media.shadow = shadow
    assert read(media, 0, END) == bytes(END * BLOCK)
    with pytest.raises(AccessDeniedError):
        read(media, END, 1)


CHANGES: dict[str, Callable[[EncryptedMedia, int, int], None]] = {
    "read": lambda media, lba, blocks: media.read(lba, memoryview(bytearray(blocks * BLOCK))),
    "write": lambda media, lba, blocks: media.write(lba, memoryview(bytearray(blocks * BLOCK))),
    "zeroes": lambda media, lba, blocks: media.write_zeroes(lba, blocks),
    "deallocate": lambda media, lba, blocks: media.deallocate(lba, blocks),
}


@pytest.mark.parametrize(
    ("command", "lba", "blocks"),
    [
        *((name, END - 1, 2) for name in CHANGES),
        *((name, 0, END + 1) for name in CHANGES),
        *((name, END - 1, 1) for name in CHANGES if name != "read"),
    ],
)
def test_commands_into_the_shadow_change_no_block(
    media: EncryptedMedia, shadow: Shadow, command: str, lba: int, blocks: int
) -> None:
    data = os.urandom(2 * END * BLOCK)
    media.write(0, memoryview(bytearray(data)))
    media.shadow = shadow
    with pytest.raises(AccessDeniedError):
        CHANGES[command](media, lba, blocks)
    CHANGES[command](media, END, 1)  # beside it all continues
    assert read(media, 0, END) == bytes(END * BLOCK)
    media.shadow = None
    assert read(media, 0, END) == data[: END * BLOCK]
