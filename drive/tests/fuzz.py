"""Fuzzes a running drive with changed PDUs and ComPackets.

    python -m drive.tests.fuzz --seed 1 --inputs 1000000
    python -m drive.tests.fuzz --replay build/fuzz/last.jsonl

Inputs come in batches of one kind, a function of seed and number alone:

- `pdu`: changed PDUs on a connection of their own, ended by the host's half close.
- `packet`: changed payloads of Security Send, each with its Security Receive.
- `call`: method calls in sessions of Anybody, three with changed values and one with changed
  tokens, which ends most sessions.
- `owner`: the same in one session of somebody with a PIN, on a drive of their own, which is killed
  at every write of its state (`fuzz_owned.py`).

What must hold: the process lives and logs no traceback; every command is answered, and every
connection closed, within the deadline; a host with the right PIN is served in between; neither the
first drive's state file nor what lies in its locked ranges, one in each namespace, ever changes;
memory and threads do not grow. What was sent since all of that was last seen to hold is kept in a
file for --replay.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from drive.initiator import Initiator
from drive.opal import uids
from drive.opal.calls import encode_call
from drive.opal.packets import COM_ID, Message, pack
from drive.tests.batches import CALLS_A_SESSION, Batch, seeded
from drive.tests.fuzz_owned import Owned
from drive.tests.fuzz_wire import (
    CHANGE,
    CRASH,
    DEADLINE_S,
    KEY,
    STACK_RESET,
    FindingError,
    connect_pdus,
    exchange,
    read_answer,
)
from drive.tests.opal_host import OpalSession, lock, msid, set_up_range, take_ownership
from drive.tests.process import NQN, PSID, SIZE_BYTES, Drive

CHECK_EVERY_BATCHES = 128
_GROWTH_LIMIT_KIB = 16 << 10
SECOND_BYTES = 16 << 20
FIRST_BLOCKS = {1: 0, 2: (SIZE_BYTES - SECOND_BYTES) // 512}  # of each namespace
STARTS = {index: first + 256 for index, first in FIRST_BLOCKS.items()}  # of its locked range
RANGE_BLOCKS = 256


class Target:
    """A drive of two namespaces under fuzz, of which nobody who sends inputs knows a PIN.

    A range in each namespace is locked, with data in it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.drive = Drive(folder, opal=True, block_bytes=512, second_bytes=SECOND_BYTES)
        self.drive.start()
        self._pin, self._user_pins = os.urandom(16), {1: os.urandom(16), 2: os.urandom(16)}
        self._admin: Initiator | None = None
        self.reset()
        self._kept = self._hashes()
        self._memory_kib = 0

    def reset(self) -> None:
        """Set up an owner and a locked range in each namespace, whatever the drive was before."""
        self.drive.ask("power-cycle")
        host = self.drive.connect()
        with OpalSession(host, uids.ADMIN_SP, uids.PSID, PSID) as session:
            session.call(uids.ADMIN_SP, uids.REVERT)
        take_ownership(host, self._pin)
        for index, pin in self._user_pins.items():
            set_up_range(host, self._pin, index, (STARTS[index], RANGE_BLOCKS), pin)
            lock(host, pin, index, locked=False)
            data = os.urandom(512 * RANGE_BLOCKS)
            at = STARTS[index] - FIRST_BLOCKS[index]
            written = self.drive.io().run(0x01, index, data, cdw10=at, cdw12=RANGE_BLOCKS - 1)
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
                medium.seek(start * 512)
                parts.append(medium.read(RANGE_BLOCKS * 512))
        return [hashlib.sha256(part).hexdigest() for part in parts]

    def run(self, batch: Batch) -> None:
        """Send one batch; raises FindingError for a command or connection without an end."""
        try:
            if batch.kind == "pdu":
                self._send_pdus(batch)
            else:
                self._send_security(batch)
        except TimeoutError as error:
            raise FindingError(
                f"no answer within {DEADLINE_S} s to a batch of {batch.kind}"
            ) from error

    def _send_pdus(self, batch: Batch) -> None:
        with socket.create_connection(("127.0.0.1", self.drive.port), DEADLINE_S) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = b""
            admin = None
            if batch.on != "new":
                controller = 0xFFFF
                if batch.on == "io":
                    admin = Initiator(self.drive.port, NQN)
                    controller = admin.controller_id
                head = connect_pdus(int(batch.on == "io"), controller)
            try:
                sock.sendall(head + b"".join(batch.inputs))
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 20):
                    pass
            except (ConnectionError, BrokenPipeError):
                pass  # it has had enough of us
            except OSError as error:
                if isinstance(error, TimeoutError):
                    raise
            if admin is not None:
                admin.close()

    def _send_security(self, batch: Batch) -> None:
        host = self._connection()
        if batch.kind == "packet":
            pairs = zip(batch.heads, batch.inputs, strict=True)
            commands = [part for (p, c), data in pairs for part in exchange(p, c, data)]
        else:
            commands = self._calls_of_anybody(host, batch)
        try:
            host._sock.sendall(b"".join(commands))
            for _ in commands:
                read_answer(host)
        except TimeoutError:
            raise
        except OSError as error:
            raise FindingError(f"the drive ended a well-formed connection: {error}") from error

    def _connection(self) -> Initiator:
        if self._admin is None:
            self._admin = Initiator(self.drive.port, NQN)
        return self._admin

    def _calls_of_anybody(self, host: Initiator, batch: Batch) -> list[bytes]:
        """Commands with a session for every few calls; sessions are numbered one after another."""
        sp = uids.ADMIN_SP if batch.on == "admin" else uids.LOCKING_SP
        tper_number, host_number = self._open(host, batch)
        start = encode_call(uids.SESSION_MANAGER, uids.START_SESSION, [host_number, sp, 1])
        commands: list[bytes] = []
        for at, payload in enumerate(batch.inputs):
            if at % CALLS_A_SESSION == 0:
                commands += exchange(2, COM_ID, STACK_RESET)
                commands += exchange(1, COM_ID, pack(Message(0, 0, start)))
                tper_number += 1
            packet = pack(Message(tper_number, host_number, payload))
            commands += exchange(1, COM_ID, packet)
        return commands

    def _open(self, host: Initiator, batch: Batch) -> tuple[int, int]:
        """Return the numbers of a session for the batch's calls."""
        if host.security_send(2, COM_ID, STACK_RESET).status:
            raise FindingError("a stack reset was refused")
        session = OpalSession(host, uids.ADMIN_SP if batch.on == "admin" else uids.LOCKING_SP)
        return session.tper_number, session.host_number

    def check(self) -> None:
        """Raise FindingError unless the drive is in order; starts over with a power cycle."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        drive = self.drive
        if drive.process is None or drive.process.poll() is not None:
            raise FindingError("the drive's process has ended")
        log = drive.path("log")
        if b"Traceback" in log.read_bytes():
            raise FindingError(f"a traceback in {log}")
        os.truncate(log, 0)
        if not drive.ask("power-cycle")["ok"]:
            raise FindingError("the control socket refused a power cycle")
        if self._hashes() != self._kept:
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


def fuzz(
    batches: Iterator[Batch],
    folder: Path,
    kept: Path,
    so_far: Callable[[Counter[str]], object] = lambda _: None,
) -> Counter[str]:
    """Run the batches; returns figures, or raises FindingError and fills `kept`.

    `so_far` gets the figures whenever all has been seen to hold.
    """
    folder.mkdir(exist_ok=True)
    sealed, owned = Target(folder / "sealed"), Owned(folder / "owned", SECOND_BYTES)
    figures, since = owned.figures, list[Batch]()
    try:
        for number, batch in enumerate(batches, 1):
            since.append(batch)
            (owned if batch.kind == "owner" else sealed).run(batch)
            figures["inputs"] += len(batch.inputs)
            if number % CHECK_EVERY_BATCHES == 0:
                sealed.check()
                since.clear()
                so_far(figures)
        sealed.check()
    except Exception as error:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text("".join(f"{batch.dump()}\n" for batch in since))
        kind = error.kind if isinstance(error, FindingError) else CRASH
        raise FindingError(f"{error}; what was sent is in {kept}", kind) from error
    finally:
        sealed.close()
        owned.close()
    return figures


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 nothing found, 1 a finding."""
    parser = argparse.ArgumentParser(prog="python -m drive.tests.fuzz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--replay", type=Path, help="what an earlier finding left")
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz/last.jsonl"))
    parser.add_argument("--out", type=Path, help="for the figures so far, as JSON")
    options = parser.parse_args(arguments)
    batches = seeded(options.seed, options.inputs)
    if options.replay:
        batches = map(Batch.load, options.replay.read_text().splitlines())
    begin = time.monotonic()

    def write(figures: Mapping[str, int | str]) -> str:
        result = {"seed": options.seed, CRASH: 0, CHANGE: 0, KEY: 0, **figures}
        text = json.dumps({**result, "seconds": round(time.monotonic() - begin)}, indent=1)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(text + "\n")
        return text

    latest: dict[str, int | str] = {}

    def so_far(figures: Counter[str]) -> None:
        latest.update(figures)
        write({**latest, "ended": "not yet"})

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        try:
            print(write(fuzz(batches, Path(folder), options.keep, so_far)))
        except FindingError as finding:
            print(write({**latest, finding.kind: 1, "finding": str(finding)}))
            traceback.print_exc()  # where, for what is not found again by --replay
            print(f"fde: {finding}", file=sys.stderr)
            for log in Path(folder).glob("*/log"):
                print(log.read_text()[-3000:], file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
