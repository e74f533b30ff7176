"""A drive whose owner sends changed calls, and which is killed at every write of its state.

Each write ends at another of its steps, one after the other; every eighth start is killed as well.
While the drive is down, each range's first block gets a mark under the key that the range has.
What must hold at the next start: the state file is the old or the new one; nothing is left beside
it; what locks at power-on is locked, for reading and writing; and where a range has a new key, the
old one is in no file of the drive and opens nothing of its mark.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from itertools import count
from pathlib import Path

from drive.initiator import Initiator
from drive.opal import uids
from drive.opal.packets import COM_ID, Message, pack
from drive.state import POWER_CYCLE, DriveState, parse
from drive.tests.batches import CALLS_A_SESSION, Batch
from drive.tests.dying import DyingDrive
from drive.tests.fuzz_wire import (
    CHANGE,
    DEADLINE_S,
    KEY,
    FindingError,
    exchange,
    read_answer,
)
from drive.tests.keys import kek_of, range_keys, xts
from drive.tests.opal_host import OpalSession, RefusedError, set_up_range, take_ownership
from drive.tests.process import NQN, PSID, SIZE_BYTES

BLOCK = 512
STEPS = 10
TRIES = 100
MARK = b"a mark that an erase must take away".ljust(BLOCK)
DENIED = 0x4286


class Owned:
    """The drive; `figures` counts what has happened to it."""

    def __init__(self, folder: Path, second_bytes: int) -> None:
        folder.mkdir()
        self.drive = DyingDrive(folder, opal=True, block_bytes=BLOCK, second_bytes=second_bytes)
        self._second = (SIZE_BYTES - second_bytes) // BLOCK
        self._pin, self._user_pin = os.urandom(16), os.urandom(16)
        self._kek: bytes | None = None
        self._marks: dict[int, tuple[int, bytes]] = {}
        # Where its owner lets a controller's reset lock ranges, it writes, and dies, at each
        # connection: so many writes are let pass, until one comes to a session.
        self._spared = 0
        self.figures: Counter[str] = Counter(
            inputs=0, kills=0, kills_at_power_on=0, erasures=0, resets=0
        )
        self._reset()

    def close(self) -> None:
        """End it."""
        self.drive.kill()

    def run(self, batch: Batch) -> None:
        """Send the batch; the drive is started again as often as it dies of it."""
        left = list(batch.inputs)
        while left:
            try:
                host, numbers = self._open(batch.on)
            except OSError:
                self._spared += 1
                self._start_again()
                continue
            self._spared = 0
            left = left[self._send(host, numbers, left[:CALLS_A_SESSION]) :]
            host.close()

    def _open(self, on: str) -> tuple[Initiator, tuple[int, int]]:
        sp = uids.ADMIN_SP if on == "admin" else uids.LOCKING_SP
        who = uids.SID if on == "admin" else uids.ADMIN_AUTHORITIES[0]
        for tries in count(1):
            host = Initiator(self.drive.port, NQN)
            try:
                session = OpalSession(host, sp, who, self._pin)
            except RefusedError:
                host.close()
                self.drive.kill()
                self.figures["resets"] += 1
                self._reset()
                continue
            except AssertionError as error:  # a controller that has just gone may reset sessions
                if tries > TRIES:
                    raise FindingError("no session for its owner") from error
                host.close()
                time.sleep(0.01)
                continue
            break
        return host, (session.tper_number, session.host_number)

    def _send(self, host: Initiator, numbers: tuple[int, int], calls: list[bytes]) -> int:
        """How many calls were answered, with the one that the drive died of."""
        packets = (pack(Message(*numbers, payload)) for payload in calls)
        commands = [part for data in packets for part in exchange(1, COM_ID, data)]
        answered = 0
        try:
            host._sock.sendall(b"".join(commands))
            for answered in range(1, len(commands) + 1):  # noqa: B007
                read_answer(host)
        except TimeoutError as error:
            raise FindingError(f"no answer within {DEADLINE_S} s to its owner") from error
        except OSError:
            self._start_again()
            return max(1, answered // 2 + answered % 2)
        return len(calls)

    # Its deaths.

    def _start(self) -> None:
        """Start it, marked, to die of its next write, and every eighth time at once."""
        self._mark()
        kills = self.figures["kills"] + self.figures["kills_at_power_on"]
        if kills % 8 == 7:
            self.figures["kills_at_power_on"] += 1
            self._before = self._state_bytes()
            self.drive.launch(self.drive.at(0, 1 + self.figures["kills_at_power_on"] % STEPS))
            self._check_dead()
        self.drive.start(self.drive.at(1 + self._spared, 1 + kills % STEPS))
        self._before = self._state_bytes()
        self._check_alive()

    def _start_again(self) -> None:
        while True:
            self.figures["kills"] += 1
            self._check_dead()
            self._check_erased()
            try:
                self._start()
            except OSError:
                self._spared += 1
                continue
            return

    def _check_dead(self) -> None:
        """Check that our kill ended it, and that the state is the old or the new one."""
        if self.drive.wait() != -9 or (ended := self.drive.ended()) is None:
            raise FindingError("the owners' drive ended of itself")
        at, new = ended
        self.figures[f"kills at {at}"] += 1
        if self._state_bytes() not in (self._before, new):
            raise FindingError(f"a kill at {at} left neither the old nor the new state", CHANGE)

    def _check_alive(self) -> None:
        if list(self.drive.directory.glob(".*")):
            raise FindingError("a start left what a killed write had left", KEY)
        log = self.drive.path("log")
        if b"Traceback" in log.read_bytes():
            raise FindingError(f"a traceback in {log}")
        os.truncate(log, 0)
        state = parse(self._before)
        for index, lba in _first_blocks(state).items():
            row = state.ranges[index]
            locks = POWER_CYCLE in row.lock_on_reset
            reads_lock = row.read_lock_enabled and not state.mbr.shadows
            for opcode, enabled in ((0x01, row.write_lock_enabled), (0x02, reads_lock)):
                if enabled and locks and self._run(opcode, lba) != DENIED:
                    raise FindingError(f"range {index} is open after a kill", CHANGE)

    def _run(self, opcode: int, lba: int) -> int:
        nsid = 1 + (lba >= self._second)
        data, count = (MARK, 0) if opcode == 0x01 else (b"", BLOCK)
        admin = Initiator(self.drive.port, NQN)
        queue = Initiator(self.drive.port, NQN, 1, admin.controller_id)
        done = queue.run(opcode, nsid, data, count, cdw10=lba - (self._second if nsid == 2 else 0))
        queue.close()
        admin.close()
        return done.status

    # Keys.

    def _state_bytes(self) -> bytes:
        return self.drive.path("state.json").read_bytes()

    def _keys(self, state: DriveState) -> dict[int, bytes]:
        self._kek = kek_of(state, (self._pin, self._user_pin)) or self._kek
        return range_keys(state, self._kek)

    def _mark(self) -> None:
        """Write the mark to each range whose key can be known, past the drive."""
        state = parse(self._state_bytes())
        keys, places = self._keys(state), _first_blocks(state)
        self._marks = {index: (places[index], keys[index]) for index in keys if index in places}
        with self.drive.path("disk.img").open("r+b") as medium:
            for lba, key in self._marks.values():
                medium.seek(lba * BLOCK)
                medium.write(xts(key, lba, MARK))

    def _check_erased(self) -> None:
        data = self._state_bytes()
        keys = self._keys(parse(data)).values()
        for index, (lba, key) in self._marks.items():
            if key in keys:
                continue
            self.figures["erasures"] += 1
            with self.drive.path("disk.img").open("rb") as medium:
                medium.seek(lba * BLOCK)
                opened = xts(key, lba, medium.read(BLOCK), decrypt=True)
            if opened == MARK or key.hex().encode() in data:
                raise FindingError(f"the old key of range {index} outlives its erasure", KEY)

    def _reset(self) -> None:
        """Make a drive with an owner, and a range of user 2 that locks."""
        self.drive.start()
        host = Initiator(self.drive.port, NQN)
        with OpalSession(host, uids.ADMIN_SP, uids.PSID, PSID) as session:
            session.call(uids.ADMIN_SP, uids.REVERT)
        take_ownership(host, self._pin)
        set_up_range(host, self._pin, 1, (256, 256), self._user_pin)
        set_up_range(host, self._pin, 2, (self._second + 256, 256), self._user_pin)
        host.close()
        self.drive.kill()
        self._start()


def _first_blocks(state: DriveState) -> dict[int, int]:
    """Return the first block of each range that has any."""
    rows = {i: r for i, r in enumerate(state.ranges) if i and r.length}
    places = {index: row.start for index, row in rows.items()}
    lba = 0
    for row in sorted(rows.values(), key=lambda row: row.start):
        if row.start > lba:
            break
        lba = row.start + row.length
    return places | ({0: lba} if lba < state.blocks else {})
