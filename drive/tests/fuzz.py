"""Fuzzes two running drives with changed PDUs, ComPackets and calls, drawn by Hypothesis.

    python -m drive.tests.fuzz --seed 1 --inputs 1000000
    python -m drive.tests.fuzz --replay build/fuzz/last.txt

Inputs come in batches of one kind (`mutate.batches`):

- `pdu`: changed PDUs on a connection of their own, ended by the host's half close.
- `packet`: changed payloads of Security Send, each with its Security Receive.
- `call`: method calls in sessions of Anybody, three with changed values and one with changed
  tokens, which ends most sessions.
- `owner`: the same in one session of somebody with a PIN, on a drive of their own, which is killed
  at every write of its state: each ends at another of its steps, and so does every eighth start.

What must hold: the process lives and logs no traceback; every command is answered, and every
connection closed, within the deadline; a host with the right PIN is served in between; neither the
first drive's state file nor what lies in its locked ranges, one in each namespace, ever changes;
memory and threads do not grow. The owner's drive starts again with the old or the new state and
nothing beside it; what locks at power-on is locked; where a range has a new key, the old one is in
no file of the drive and opens nothing of a mark under it. What was sent since all of that was last
seen to hold is kept in a file for --replay.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from drive.initiator import Initiator
from drive.nvme_tcp import COMMON, PDU_C2H_DATA
from drive.opal import uids
from drive.opal.calls import encode_call
from drive.opal.packets import COM_ID, Message, pack
from drive.state import POWER_CYCLE, DriveState, parse
from drive.tests.corpus import recorded
from drive.tests.dying import DyingDrive
from drive.tests.keys import kek_of, range_keys, xts
from drive.tests.mutate import BATCH, CALLS_A_SESSION, SHARES, Batch, batches
from drive.tests.opal_host import (
    OpalSession,
    RefusedError,
    lock,
    msid,
    set_up_range,
    take_ownership,
)
from drive.tests.process import NQN, PSID, SIZE_BYTES, Drive
from drive.tests.wire import connect_pdus, exchange

DEADLINE_S = 30
CRASH, CHANGE, KEY = "crashes", "unauthorised_changes", "keys_after_erase"
CHECK_EVERY_BATCHES = 128
_GROWTH_LIMIT_KIB = 16 << 10
BLOCK = 512
SECOND_BYTES = 16 << 20
SECOND = (SIZE_BYTES - SECOND_BYTES) // BLOCK  # first block of the second namespace
STARTS = {1: 256, 2: SECOND + 256}  # of the locked range in each namespace
RANGE_BLOCKS = 256
STEPS = 10  # of a write of the state
TRIES = 100
MARK = b"a mark that an erase must take away".ljust(BLOCK)
DENIED = 0x4286


class FindingError(Exception):
    """Something that a drive must not do; `kind` is CRASH, CHANGE or KEY."""

    def __init__(self, message: str, kind: str = CRASH) -> None:
        super().__init__(message)
        self.kind = kind


def set_up(host: Initiator, pin: bytes, user_pins: dict[int, bytes]) -> None:
    """Revert by the label, then give it an owner and a user's range in each namespace."""
    with OpalSession(host, uids.ADMIN_SP, uids.PSID, PSID) as session:
        session.call(uids.ADMIN_SP, uids.REVERT)
    take_ownership(host, pin)
    for index, user_pin in user_pins.items():
        set_up_range(host, pin, index, (STARTS[index], RANGE_BLOCKS), user_pin)


def send(host: Initiator, commands: list[bytes]) -> tuple[int, OSError | None]:
    """Send PDUs at once and read their answers; how many came before the connection ended."""
    answered = 0
    try:
        host._sock.sendall(b"".join(commands))
        for answered in range(1, len(commands) + 1):  # noqa: B007
            kind, _, _, _, length = COMMON.unpack_from(host._receive(24))
            if kind == PDU_C2H_DATA:
                host._receive(length - 24)
    except TimeoutError as error:
        raise FindingError(f"no answer within {DEADLINE_S} s") from error
    except OSError as error:
        return answered, error
    return answered, None


def check_log(drive: Drive) -> None:
    """Raise FindingError for a traceback; empties the log."""
    if "Traceback" in drive.log():
        raise FindingError(f"a traceback in {drive.path('log')}")
    os.truncate(drive.path("log"), 0)


class Target:
    """A drive of two namespaces under fuzz, of which nobody who sends inputs knows a PIN.

    A range in each namespace is locked, with data in it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.drive = Drive(folder, opal=True, block_bytes=BLOCK, second_bytes=SECOND_BYTES)
        self.drive.start()
        self._pin, self._user_pins = os.urandom(16), {1: os.urandom(16), 2: os.urandom(16)}
        self._admin: Initiator | None = None
        self.reset()
        self._expected_hashes = self._hashes()
        self._memory_kib = 0

    def reset(self) -> None:
        """Set up an owner and a locked range in each namespace, whatever the drive was before."""
        self.drive.ask("power-cycle")
        host = self.drive.connect()
        set_up(host, self._pin, self._user_pins)
        for index, pin in self._user_pins.items():
            lock(host, pin, index, locked=False)
            data = os.urandom(BLOCK * RANGE_BLOCKS)
            written = self.drive.io().run(0x01, index, data, cdw10=256, cdw12=RANGE_BLOCKS - 1)
            if written.status:
                raise FindingError(f"a write to namespace {index} failed: {written.status:#x}")
        for host in self.drive.hosts:
            host.close()
        self.drive.hosts.clear()
        self.drive.ask("power-cycle")

    def close(self) -> None:
        """End the drive's process, as its user does."""
        if self.drive.process is not None:
            self.drive.process.terminate()
            self.drive.process.wait(DEADLINE_S)

    def _hashes(self) -> list[str]:
        """Of the state, and of what the medium holds in each locked range."""
        parts = [self.drive.path("state.json").read_bytes()]
        with self.drive.path("disk.img").open("rb") as medium:
            for start in STARTS.values():
                medium.seek(start * BLOCK)
                parts.append(medium.read(RANGE_BLOCKS * BLOCK))
        return [hashlib.sha256(part).hexdigest() for part in parts]

    def run(self, batch: Batch) -> None:
        """Send one batch; raises FindingError for a command or connection without an end."""
        kind, on, inputs = batch
        if kind == "pdu":
            for part in [[data] for data in inputs] if on == "new" else [inputs]:
                self._send_pdus(on, b"".join(part))
            return
        if self._admin is None:
            self._admin = Initiator(self.drive.port, NQN)
        if kind == "packet":
            commands = [part for head in inputs for part in exchange(*head)]
        else:
            commands = self._calls_of_anybody(self._admin, on, inputs)
        _, error = send(self._admin, commands)
        if error is not None:
            raise FindingError(f"the drive ended a well-formed connection: {error}") from error

    def _send_pdus(self, on: str, data: bytes) -> None:
        with socket.create_connection(("127.0.0.1", self.drive.port), DEADLINE_S) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            admin = Initiator(self.drive.port, NQN) if on == "io" else None
            controller = admin.controller_id if admin else 0xFFFF
            head = b"" if on == "new" else connect_pdus(int(on == "io"), controller)
            try:
                sock.sendall(head + data)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 20):
                    pass
            except TimeoutError as error:
                raise FindingError(f"no end within {DEADLINE_S} s after PDUs") from error
            except OSError:
                pass  # it has had enough of us
            if admin is not None:
                admin.close()

    def _calls_of_anybody(self, host: Initiator, on: str, inputs: list[bytes]) -> list[bytes]:
        """Commands with a session for every few calls; sessions are numbered one after another."""
        sp = uids.ADMIN_SP if on == "admin" else uids.LOCKING_SP
        reset = (2, COM_ID, struct.pack(">HHI504x", COM_ID, 0, 2))
        if host.security_send(*reset).status:
            raise FindingError("a stack reset was refused")
        session = OpalSession(host, sp)
        tper_number, host_number = session.tper_number, session.host_number
        start = encode_call(uids.SESSION_MANAGER, uids.START_SESSION, [host_number, sp, 1])
        commands: list[bytes] = []
        for at, payload in enumerate(inputs):
            if at % CALLS_A_SESSION == 0:
                commands += exchange(*reset)
                commands += exchange(1, COM_ID, pack(Message(0, 0, start)))
                tper_number += 1
            packet = pack(Message(tper_number, host_number, payload))
            commands += exchange(1, COM_ID, packet)
        return commands

    def check(self) -> None:
        """Raise FindingError unless the drive is in order; starts over with a power cycle."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        drive = self.drive
        if drive.process is None or drive.process.poll() is not None:
            raise FindingError("the drive's process has ended")
        check_log(drive)
        if not drive.ask("power-cycle")["ok"]:
            raise FindingError("the control socket refused a power cycle")
        if self._hashes() != self._expected_hashes:
            raise FindingError("the state or a locked range has changed without authority", CHANGE)
        self._serve_others()
        self._check_growth()

    def _serve_others(self) -> None:
        host = Initiator(self.drive.port, NQN)
        if not msid(host):
            raise FindingError("the drive has no MSID")
        for index, pin in self._user_pins.items():
            user, row = uids.USER_AUTHORITIES[index], uids.LOCKING_ROWS[index]
            expected = {3: STARTS[index], 4: RANGE_BLOCKS, 5: 1, 6: 1, 7: 1, 8: 1}
            with OpalSession(host, uids.LOCKING_SP, user, pin) as session:
                if session.get(row, 3, 8) != expected:
                    raise FindingError(f"range {index} is not what it was", CHANGE)
        host.close()

    def _check_growth(self) -> None:
        self._memory_kib = self._memory_kib or self.drive.proc("VmRSS")
        grown = self.drive.proc("VmRSS") - self._memory_kib
        if grown > _GROWTH_LIMIT_KIB:
            raise FindingError(f"memory has grown by {grown} KiB")
        deadline = time.monotonic() + DEADLINE_S
        while self.drive.proc("Threads") > 8:
            if time.monotonic() > deadline:
                raise FindingError(f"{self.drive.proc('Threads')} threads are left")
            time.sleep(0.01)


class Owned:
    """A drive whose owner sends changed calls; `figures` counts what has happened to it.

    While it is down, each range's first block gets a mark under the key that the range has.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.drive = DyingDrive(folder, opal=True, block_bytes=BLOCK, second_bytes=SECOND_BYTES)
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
        _, on, remaining = batch
        while remaining:
            try:
                host, numbers = self._open(on)
            except OSError:
                self._spared += 1
                self._start_again()
                continue
            self._spared = 0
            remaining = remaining[self._send(host, numbers, remaining[:CALLS_A_SESSION]) :]
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
        answered, error = send(host, commands)
        if error is not None:
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
        check_log(self.drive)
        state = parse(self._before)
        for index, lba in _first_blocks(state).items():
            row = state.ranges[index]
            locks = POWER_CYCLE in row.lock_on_reset
            reads_lock = row.read_lock_enabled and not state.mbr.shadows
            for opcode, enabled in ((0x01, row.write_lock_enabled), (0x02, reads_lock)):
                if enabled and locks and self._run(opcode, lba) != DENIED:
                    raise FindingError(f"range {index} is open after a kill", CHANGE)

    def _run(self, opcode: int, lba: int) -> int:
        nsid = 1 + (lba >= SECOND)
        data, count = (MARK, 0) if opcode == 0x01 else (b"", BLOCK)
        admin = Initiator(self.drive.port, NQN)
        queue = Initiator(self.drive.port, NQN, 1, admin.controller_id)
        completion = queue.run(opcode, nsid, data, count, cdw10=lba - (SECOND if nsid == 2 else 0))
        queue.close()
        admin.close()
        return completion.status

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
        set_up(host, self._pin, {1: self._user_pin, 2: self._user_pin})
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


def fuzz(
    drawn: Callable[[Callable[[Batch], None]], object],
    folder: Path,
    finding_file: Path,
    so_far: Callable[[Counter[str]], object] = lambda _: None,
) -> Counter[str]:
    """Run the batches of `drawn`; return figures, or write `finding_file` and raise FindingError.

    `so_far` gets the figures whenever all has been seen to hold.
    """
    folder.mkdir(exist_ok=True)
    sealed, owned = Target(folder / "sealed"), Owned(folder / "owned")
    since: list[Batch] = []
    findings: list[Exception] = []

    def run(batch: Batch) -> None:
        if findings:  # which is not made smaller: it may take all that was sent before it
            return
        since.append(batch)
        try:
            (owned if batch[0] == "owner" else sealed).run(batch)
            owned.figures["inputs"] += len(batch[2])
            owned.figures["batches"] += 1
            if owned.figures["batches"] % CHECK_EVERY_BATCHES == 0:
                sealed.check()
                since.clear()
                so_far(owned.figures)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            findings.append(error)

    try:
        drawn(run)
        if not findings:
            sealed.check()
    except FindingError as error:
        findings.append(error)
    finally:
        sealed.close()
        owned.close()
    if findings:
        finding_file.parent.mkdir(parents=True, exist_ok=True)
        finding_file.write_text(repr(since))
        kind = findings[0].kind if isinstance(findings[0], FindingError) else CRASH
        raise FindingError(
            f"{findings[0]}; what was sent is in {finding_file}", kind
        ) from findings[0]
    return owned.figures


def draw(seed: int, inputs: int) -> Callable[[Callable[[Batch], None]], None]:
    """Return what gives so many inputs to a function, from the seed alone."""
    limits = settings(
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def drawn(run: Callable[[Batch], None]) -> None:
        for kind, share in SHARES.items():
            count = -(-inputs * share // BATCH // sum(SHARES.values()))

            @seeded(seed)
            @settings(limits, max_examples=count)
            @given(batches(recorded(), kind))
            def each(batch: Batch) -> None:
                run(batch)

            each()

    return drawn


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 nothing found, 1 a finding."""
    parser = argparse.ArgumentParser(prog="python -m drive.tests.fuzz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--replay", type=Path, help="what an earlier finding left")
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz/last.txt"))
    parser.add_argument("--out", type=Path, help="for the figures so far, as JSON")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    result: dict[str, int | str] = {"seed": options.seed, CRASH: 0, CHANGE: 0, KEY: 0}

    def write(figures: dict[str, int] | dict[str, str]) -> None:
        result.update(figures, seconds=round(time.monotonic() - begin))
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(result, indent=1) + "\n")

    def replay(run: Callable[[Batch], None]) -> None:
        for batch in ast.literal_eval(options.replay.read_text()):
            run(batch)

    write({"ended": "not yet"})
    drawn = replay if options.replay else draw(options.seed, options.inputs)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        try:
            figures = fuzz(drawn, Path(folder), options.keep, write)
        except FindingError as finding:
            write({"ended": str(finding)})
            write({finding.kind: 1})
            traceback.print_exc()  # where, for what is not found again by --replay
            print(f"fde: {finding}", file=sys.stderr)
            for log in Path(folder).glob("*/log"):
                print(log.read_text()[-3000:], file=sys.stderr)
            return 1
    result.pop("ended")
    write(figures)
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
