"""What the files of a drive give away, and what is left of them after a crash."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from drive import state as drive_state
from drive.aes_xts import AesXts
from drive.opal import uids
from drive.state import DriveState, RangeState, StateError, parse
from drive.tests.keys import kek_of, range_keys, xts
from drive.tests.opal_host import (
    OWNER,
    USER2,
    OpalSession,
    lock,
    own_with_range,
    set_up_range,
    take_ownership,
)
from drive.tests.process import PSID, Drive

PLAINTEXT = b"plaintext that must not be on the medium "
ADMIN1 = uids.ADMIN_AUTHORITIES[0]


def media_keys(state: DriveState, pin: bytes) -> dict[int, bytes]:
    """Return the ranges' wrapped keys as somebody gets them who has the state file and a PIN."""
    wrapped = [replace(row, open_key=b"") for row in state.ranges]
    return range_keys(replace(state, ranges=wrapped), kek_of(state, [pin]))


@pytest.mark.parametrize("key_bytes", [32, 64])
@pytest.mark.parametrize("sector_bytes", [512, 4096])
def test_the_media_cipher_is_aes_xts(key_bytes: int, sector_bytes: int) -> None:
    key, data = os.urandom(key_bytes), os.urandom(3 * sector_bytes)
    buffer = memoryview(bytearray(data))
    cipher = AesXts(key, sector_bytes)
    cipher.encrypt(2**33, buffer)
    parts = [data[i : i + sector_bytes] for i in range(0, len(data), sector_bytes)]
    assert buffer.tobytes() == b"".join(xts(key, 2**33 + i, part) for i, part in enumerate(parts))
    cipher.decrypt(2**33, buffer)
    assert buffer.tobytes() == data


@pytest.mark.parametrize("block_bytes", [512, 4096])
def test_the_medium_matches_an_independent_aes_xts(
    make_drive: Callable[..., Drive], block_bytes: int
) -> None:
    sed = make_drive(opal=True, block_bytes=block_bytes)
    host = sed.connect()
    own_with_range(host)
    set_up_range(host, OWNER, 2, (512, 256), b"pin 3")
    data = (PLAINTEXT * 512)[: 2 * block_bytes]
    queue = sed.io()
    for lba in (100, 255, 300, 511, 600):
        assert queue.write(lba, data[:block_bytes] * 2, block_bytes).status == 0
    medium, state = sed.path("disk.img").read_bytes(), sed.state()
    assert PLAINTEXT[:16] not in medium
    keys = media_keys(state, OWNER)
    assert len({keys[index] for index in range(3)}) == 3 and keys[1] == media_keys(state, USER2)[1]
    for lba, index in ((100, 0), (101, 0), (255, 0), (256, 1), (300, 1), (301, 1), (511, 1)):
        block = medium[lba * block_bytes : (lba + 1) * block_bytes]
        assert block == xts(keys[index], lba, data[:block_bytes]), lba
    assert medium[600 * block_bytes :].startswith(xts(keys[2], 600, data[:block_bytes]))


def test_a_plain_disk_holds_the_plaintext(make_drive: Callable[..., Drive]) -> None:
    drive = make_drive(opal=False)
    drive.io().write(100, PLAINTEXT.ljust(4096))
    assert drive.path("disk.img").read_bytes()[409600:].startswith(PLAINTEXT)


def test_the_state_file_has_neither_key_nor_pin(sed: Drive) -> None:
    host = sed.connect()
    take_ownership(host, OWNER)
    with OpalSession(host, uids.ADMIN_SP, uids.SID, OWNER):
        pass
    before = sed.state()
    assert before.ranges[1].open_key, "an unprotected range is served without a PIN"
    set_up_range(host, OWNER, 1, (256, 256), USER2)
    row = uids.LOCKING_ROWS[0]
    with OpalSession(host, uids.LOCKING_SP, ADMIN1, OWNER) as session:
        session.set(row, {5: 1, 6: 1})
    for locked in (False, True):
        lock(host, USER2, 1, locked)
        state, raw = sed.state(), sed.path("state.json").read_bytes()
        for index in (0, 1):
            key = media_keys(state, OWNER)[index]
            for secret in (key, key[:32], key[32:], OWNER, USER2, PSID):
                assert secret not in raw and secret.hex().encode() not in raw.lower()
            assert state.ranges[index].open_key == b""
    for name in ("state.json", "psid", "control", "disk.img"):
        if name != "psid":  # the test's own file
            assert sed.path(name).stat().st_mode & 0o077 == 0, name


@pytest.mark.parametrize("damage", [b"", b"{}", b"null", b'{"format": "other/9"}', "cut"])
def test_a_damaged_state_is_refused_and_left_as_it_is(sed: Drive, damage: bytes | str) -> None:
    sed.kill()
    path = sed.path("state.json")
    damaged = damage if isinstance(damage, bytes) else path.read_bytes()[:-40]
    path.write_bytes(damaged)
    with pytest.raises(AssertionError, match=r"fde: .*state\.json is damaged"):
        sed.start()
    assert path.read_bytes() == damaged
    assert sed.process is not None and sed.process.poll() == 1


def test_the_state_survives_its_file() -> None:
    state = DriveState(
        16384, 4096, 256, b"MSID",
        drive_state.Credential(b"s", 2, b"v"), drive_state.Credential(b"t", 2, b"w"),
        drive_state.Authority(True, drive_state.Credential(b"u", 2, b"x", b"y")), True, True,
        {"User1": drive_state.Authority(True)}, {"00": ["and"]}, {"01": b"a name"},
        [RangeState(1, 2, True, False, True, False, [0, 3], b"", b"wrapped")],
        drive_state.MbrControl(True, False, [0, 1]),
    )  # fmt: skip
    assert parse(drive_state.dump(state)) == state
    with pytest.raises(StateError):
        parse(drive_state.dump(state).replace(b'"start"', b'"begin"'))
