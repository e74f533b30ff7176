"""The drive through thousands of changes, and where no PIN may be found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from drive.initiator import Initiator
from drive.opal import uids
from drive.tests.opal_host import (
    OWNER,
    USER2,
    OpalSession,
    RefusedError,
    lock,
    msid,
    own_with_range,
)
from drive.tests.process import PSID, Drive

ADMIN1 = uids.ADMIN_AUTHORITIES[0]
DATA = b"data of the range".ljust(4096)
SLOW = pytest.mark.slow


def take_over(drive: Drive) -> Initiator:
    host = drive.connect()
    own_with_range(host)
    assert drive.io().write(256, DATA).status == 0
    return host


@pytest.fixture
def owned(sed: Drive) -> Initiator:
    return take_over(sed)


def sizes(drive: Drive) -> tuple[int, ...]:
    """Return the drive's threads, descriptors and files, and the bytes of its state."""
    descriptors = drive.proc("FDSize")
    with contextlib.suppress(PermissionError):  # only root may look, for it is not dumpable
        descriptors = len(list(Path(f"/proc/{drive.pid}/fd").iterdir()))
    files = len(list(drive.directory.iterdir()))
    return drive.proc("Threads"), descriptors, files, drive.path("state.json").stat().st_size


@pytest.mark.parametrize("cycles", [240, pytest.param(24_000, marks=SLOW)])
def test_locking_and_unlocking_makes_nothing_grow(
    sed: Drive, owned: Initiator, cycles: int
) -> None:
    def run(count: int) -> None:
        for _ in range(count // 40):
            user = uids.USER_AUTHORITIES[1]
            with OpalSession(owned, uids.LOCKING_SP, user, USER2) as session:
                for locked in [1, 0] * 40:
                    session.set(uids.LOCKING_ROWS[1], {7: locked, 8: locked})

    queue = sed.io()
    run(80)
    before, before_kib = sizes(sed), sed.proc("VmRSS")
    run(cycles)
    assert sed.proc("VmRSS") - before_kib < 4 << 10
    assert sizes(sed) == before
    assert queue.read(256, 1).data == DATA


def test_no_pin_is_found_where_others_may_look(make_drive: Callable[..., Drive]) -> None:
    sed = make_drive(opal=True, own_interpreter=True)
    owned = take_over(sed)
    factory, wrong = msid(owned), b"a wrong pin of somebody"
    for pin in (wrong, USER2):
        with contextlib.suppress(RefusedError):
            lock(owned, pin, 1)
    session = OpalSession(owned, uids.LOCKING_SP, ADMIN1, OWNER)
    session.raw(b"\xf0\xaf" + USER2[:15])  # refused, with a PIN in it
    process = Path(f"/proc/{sed.pid}")
    files = {name: sed.path(name) for name in ("log", "state.json", "stats")}
    places = {name: path.read_bytes() for name, path in files.items()}
    places["arguments"] = (process / "cmdline").read_bytes()
    places |= {name: repr(sed.ask(name)).encode() for name in ("status", "calls")}
    with contextlib.suppress(PermissionError):  # then nobody but root can read it
        places["environment"] = (process / "environ").read_bytes()
    assert b"NOT_AUTHORIZED" in places["log"], "refusals are logged"
    for place, content in places.items():
        for pin in (OWNER, USER2, wrong, PSID):
            assert pin not in content, place
            assert pin.hex().encode() not in content.lower(), place
        if place != "state.json":  # any host may read the MSID
            assert factory not in content, place
