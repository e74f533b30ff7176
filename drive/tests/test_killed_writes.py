"""Kills and full disks at every step of a write of the state, and what they leave behind."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drive.initiator import Initiator
from drive.opal import uids
from drive.opal.packets import Named
from drive.opal.uids import Status
from drive.state import DriveState, parse, sweep_leftovers
from drive.tests.dying import DyingDrive
from drive.tests.keys import kek_of, opened, range_keys
from drive.tests.opal_host import OWNER, USER2, OpalSession, lock, own_with_range, refused
from drive.tests.process import PSID, SIZE_BYTES, Drive, until

NEW = b"another pin"
ADMIN1, USER = uids.ADMIN_AUTHORITIES[0], uids.USER_AUTHORITIES[1]
ROW, KEY = uids.LOCKING_ROWS[1], uids.key_rows(256)[1]
MARKS = b"what nobody may read once it is erased"
BLOCK = MARKS.ljust(4096)
SECOND_BYTES = 16 << 20
SECOND = (SIZE_BYTES - SECOND_BYTES) // 4096
IN_RANGE, OUTSIDE = [256, 300, 511], [0, 100, 5000, SECOND + 7]
STEPS = (
    "open", "open", "open", "write", "flush", "fsync", "replace", "fsync", "close", "return",
)  # fmt: skip
REPLACED = STEPS.index("replace") + 1
DENIED = 0x4286
Change = Callable[[Initiator], None]
Call = Callable[[OpalSession], object]


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a drive with an owner, a range of user 2 that locks, and data in both namespaces."""
    folder = tmp_path_factory.mktemp("owned")
    drive = DyingDrive(folder, opal=True, second_bytes=SECOND_BYTES)
    drive.start()
    host = drive.connect()
    own_with_range(host)
    queue = drive.io()
    for lba in IN_RANGE + OUTSIDE:
        nsid = 1 + (lba >= SECOND)
        assert queue.run(0x01, nsid, BLOCK, cdw10=lba - SECOND * (nsid - 1)).status == 0
    drive.kill()
    drive.stop()
    return folder


@pytest.fixture(scope="module")
def owned_locks_on_resets(owned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same, with a range that every reset locks."""
    drive = DyingDrive(tmp_path_factory.mktemp("resets"), opal=True, second_bytes=SECOND_BYTES)
    restore(drive, owned)
    drive.start()
    with OpalSession(drive.connect(), uids.ADMIN_SP, uids.SID, OWNER) as session:
        session.set(uids.TPER_INFO, {8: 1})
    with OpalSession(drive.connect(), uids.LOCKING_SP, ADMIN1, OWNER) as session:
        session.set(ROW, {9: [0, 1, 3]})
    lock(drive.connect(), USER2, 1, locked=False)
    drive.kill()
    drive.stop()
    return drive.directory


def restore(drive: Drive, files: Path) -> None:
    """Restore the drive's files as they were, without starting it."""
    if drive.process is not None:
        drive.kill()
    shutil.rmtree(drive.directory)
    subprocess.run(["cp", "--recursive", files, drive.directory], check=True)


@pytest.fixture
def dying(owned: Path, in_memory: Path) -> Iterator[DyingDrive]:
    """Yield a drive with the files of `owned`; it is not started."""
    folder = in_memory / "drive"
    folder.mkdir()
    drive = DyingDrive(folder, opal=True, second_bytes=SECOND_BYTES)
    restore(drive, owned)
    yield drive
    drive.stop()


def all_keys(state: DriveState) -> dict[int, bytes]:
    """Of every range, as somebody gets them who knows every PIN."""
    return range_keys(state, kek_of(state, (OWNER, USER2, NEW)))


def leftovers(drive: Drive) -> list[Path]:
    return list(drive.directory.glob(".*"))


def session_of(who: bytes, pin: bytes, *calls: Call, sp: bytes = uids.LOCKING_SP) -> Change:
    """Return a change by one session that makes these calls."""

    def change(host: Initiator) -> None:
        with OpalSession(host, sp, who, pin) as session:
            for call in calls:
                call(session)

    return change


def generate_key(session: OpalSession) -> None:
    session.call(KEY, uids.GEN_KEY)


def begin(session: OpalSession) -> None:
    session.raw(b"\xfb\x00")


def commit(session: OpalSession) -> None:
    assert session.raw(b"\xfc\x00") == b"\xfc\x00"


new_key = session_of(ADMIN1, OWNER, generate_key)
# Each with the blocks that it erases.
ERASURES: dict[str, tuple[Change, list[int]]] = {
    "new key": (new_key, IN_RANGE),
    "new key in a transaction": (session_of(ADMIN1, OWNER, begin, generate_key, commit), IN_RANGE),
    "range moved and new key in a transaction": (
        session_of(ADMIN1, OWNER, begin, lambda s: s.set(ROW, {3: 2048}), generate_key, commit),
        IN_RANGE,
    ),
    "revert by label": (
        session_of(uids.PSID, PSID, lambda s: s.call(uids.ADMIN_SP, uids.REVERT), sp=uids.ADMIN_SP),
        IN_RANGE + OUTSIDE,
    ),
    "revert of locking": (
        session_of(ADMIN1, OWNER, lambda s: s.call(uids.THIS_SP, uids.REVERT_SP)),
        IN_RANGE + OUTSIDE,
    ),
    "revert of locking except the global range": (
        session_of(
            ADMIN1, OWNER, lambda s: s.call(uids.THIS_SP, uids.REVERT_SP, Named(0x060000, 1))
        ),
        IN_RANGE,
    ),
}
CHANGES: dict[str, Change] = {
    **{name: change for name, (change, _) in ERASURES.items()},
    "range locked": lambda host: lock(host, USER2, 1),
    "range resized": session_of(ADMIN1, OWNER, lambda s: s.set(ROW, {4: 512})),
    "new PIN": session_of(USER, USER2, lambda s: s.set(uids.c_pin(USER), {3: NEW})),
}


@pytest.mark.parametrize(("erase", "blocks"), ERASURES.values(), ids=ERASURES)
def test_a_copy_of_a_leftover_opens_nothing_after_an_erase(
    dying: DyingDrive, erase: Change, blocks: list[int]
) -> None:
    dying.launch(dying.at(0, STEPS.index("fsync") + 1))
    dying.wait()
    (leftover,) = leftovers(dying)
    keys = all_keys(parse(leftover.read_bytes())).values()
    medium = dying.path("disk.img")
    assert opened(medium, keys, MARKS, 4096) == sorted(IN_RANGE + OUTSIDE), "it opens all of them"
    dying.start()
    assert leftovers(dying) == []
    erase(dying.connect())
    assert opened(medium, keys, MARKS, 4096) == sorted({*IN_RANGE, *OUTSIDE} - set(blocks))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_kill_at_every_step_leaves_the_old_or_the_new_state(
    owned: Path, dying: DyingDrive, change: Change
) -> None:
    for step, call in enumerate(STEPS, 1):
        restore(dying, owned)
        dying.start(dying.at(1, step))
        host, old = dying.connect(), dying.path("state.json").read_bytes()
        with contextlib.suppress(OSError):
            change(host)
        assert dying.wait() == -9
        ended = dying.ended()
        assert ended is not None and ended[0] == call
        new = ended[1]
        assert dying.path("state.json").read_bytes() == (new if step > REPLACED else old)
        dying.start()
        assert leftovers(dying) == []
        check_locked_and_erased(dying, parse(old))


def check_locked_and_erased(drive: Drive, old: DriveState) -> None:
    """Check that what locks at power-on is locked, and no old key opens what has a new one."""
    state = drive.state()
    for row in state.ranges:
        assert not (row.read_lock_enabled and row.readable)
        assert not (row.write_lock_enabled and row.writable)
    if state.locking_active:
        assert drive.io().read(state.ranges[1].start, 1).status == DENIED
    before, after = all_keys(old), all_keys(state)
    gone = [key for index, key in before.items() if after[index] != key]
    assert opened(drive.path("disk.img"), gone, MARKS, 4096) == []
    for key in gone:
        assert key.hex().encode() not in drive.path("state.json").read_bytes()


def test_a_power_on_killed_at_every_step_succeeds_next_time(dying: DyingDrive) -> None:
    for step, call in enumerate(STEPS, 1):
        dying.launch(dying.at(0, step))
        assert dying.wait() == -9
        ended = dying.ended()
        assert ended is not None and ended[0] == call
        dying.start()
        assert leftovers(dying) == []
        assert dying.io().read(256, 1).status == DENIED
        lock(dying.connect(), USER2, 1, locked=False)
        assert dying.io().read(256, 1).data == BLOCK
        dying.kill()


@pytest.mark.parametrize("step", [2, 4, 6, 7, 8])
@pytest.mark.parametrize("event", ["power-on", "power-cycle", "warm-reset", "TPER_RESET", "leave"])
def test_a_reset_locks_though_its_outcome_cannot_be_written(
    owned_locks_on_resets: Path, dying: DyingDrive, event: str, step: int
) -> None:
    restore(dying, owned_locks_on_resets)
    if event == "power-on":
        dying.start(dying.at(0, step, "disk full"))
        assert "could not be saved" in dying.log() or step > REPLACED
        assert dying.io().read(256, 1).status == DENIED
        return
    dying.start(dying.at(2, step, "disk full"))
    host = dying.connect()
    lock(host, USER2, 1, locked=False)
    if event == "leave":
        host.close()
    elif event == "TPER_RESET":
        assert host.security_send(2, 4, bytes(512)).status == 0
    else:
        assert dying.ask(event)["ok"]
    until(lambda: dying.ended() is not None)
    queue = dying.io()
    assert queue.read(256, 1).status == DENIED and queue.write(256, BLOCK).status == DENIED
    assert "could not be saved" in dying.log() or step > REPLACED
    lock(dying.connect(), USER2, 1, locked=False)
    assert dying.io().read(256, 1).data == BLOCK, "the next change is written again"


def test_a_failed_write_is_reported_and_memory_matches_the_file(
    owned: Path, dying: DyingDrive
) -> None:
    for step in range(1, STEPS.index("close") + 1):
        restore(dying, owned)
        dying.start(dying.at(2, step, "disk full"))
        old, host = dying.path("state.json").read_bytes(), dying.connect()
        lock(host, USER2, 1, locked=False)
        unlocked = dying.path("state.json").read_bytes()
        if step <= REPLACED:
            assert refused(new_key, host) == Status.TPER_MALFUNCTION
        else:  # the new state is there, though its folder could not be flushed
            new_key(host)
        assert old != unlocked
        assert (dying.path("state.json").read_bytes() == unlocked) is (step <= REPLACED)
        assert leftovers(dying) == []
        assert dying.io().write(256, BLOCK).status == 0
        dying.kill()
        dying.start()
        lock(dying.connect(), USER2, 1, locked=False)
        assert dying.io().read(256, 1).data == BLOCK


def test_a_full_disk_locks_nothing_open_and_loses_nothing(dying: DyingDrive) -> None:
    """A real limit of the operating system: from now on no file of the drive may grow."""
    dying.start()
    host = dying.connect()
    lock(host, USER2, 1, locked=False)
    before = dying.path("state.json").read_bytes()
    for limit in (0, resource.RLIM_INFINITY):
        resource.prlimit(dying.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        if limit == 0:
            assert refused(lock, host, USER2, 1) == Status.TPER_MALFUNCTION
            assert dying.path("state.json").read_bytes() == before and leftovers(dying) == []
            assert dying.io().read(256, 1).status == 0, "the refused change is undone"
            assert dying.ask("power-cycle")["ok"]
        host = dying.connect()
        assert dying.io().read(256, 1).status == DENIED
    assert dying.path("state.json").read_bytes() == before
    lock(host, USER2, 1, locked=False)
    assert dying.io().read(256, 1).data == BLOCK


def test_a_failed_table_write_leaves_no_range_open(dying: DyingDrive) -> None:
    """A transaction locks a range and writes to a table that has no room on the host's disk."""
    dying.start()
    host = dying.connect()
    lock(host, USER2, 1, locked=False)
    session = OpalSession(host, uids.LOCKING_SP, ADMIN1, OWNER)
    session.raw(b"\xfb\x00")
    session.set(ROW, {7: 1, 8: 1})
    session.call(uids.DATA_STORE, uids.SET, Named(0, 0), Named(1, b"data"))
    state_bytes = dying.path("state.json").stat().st_size
    room = max(state_bytes + 4096, 1 << 16)
    session.call(uids.MBR, uids.SET, Named(0, room), Named(1, b"data"))
    resource.prlimit(dying.pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    assert session.raw(b"\xfc\x00") == b"\xfc\x01"
    resource.prlimit(
        dying.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    assert dying.state().ranges[1].read_locked
    assert dying.io().read(256, 1).status == DENIED


def test_only_files_of_a_killed_write_are_swept(tmp_path: Path) -> None:
    path = tmp_path / "disk.state"
    others = [
        path, tmp_path / ".disk.state.0123abcg", tmp_path / ".disk.state.0123abc",
        tmp_path / ".disk.stat3.0123abcd", tmp_path / ".disk.state.0123abcd.txt",
    ]  # fmt: skip
    for file in [*others, tmp_path / ".disk.state.0123abcd"]:
        file.write_bytes(b"x")
    (tmp_path / ".disk.state.01234567").mkdir()
    sweep_leftovers(path)
    assert set(tmp_path.iterdir()) == {*others, tmp_path / ".disk.state.01234567"}
