"""Fuzzes a running drive with changed PDUs and ComPackets.

    python -m lab.drive.tests.fuzz --seed 1 --inputs 1000000
    python -m lab.drive.tests.fuzz --replay build/fuzz/last.jsonl

Inputs come in batches of one kind, a function of seed and number alone:

- `pdu`: changed PDUs on a connection of their own, ended by the host's half close.
- `packet`: changed payloads of Security Send, each with its Security Receive.
- `call`: method calls in sessions of Anybody, three with changed values and one with changed
  tokens, which ends most sessions.
- `owner`: the same in one session of somebody with a PIN, on a drive of their own.

What must hold: the process lives and logs no traceback; every command is answered, and every
connection closed, within the deadline; a host with the right PIN is served in between; the first
drive's state file never changes; memory and threads do not grow. What was sent since all of that
was last seen to hold is kept in a file for --replay.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lab.drive.initiator import Initiator
from lab.drive.nvme_tcp import COMMON, IC, PDU_C2H_DATA, PDU_COMMAND, SGL_IN_CAPSULE, SGL_TRANSPORT
from lab.drive.opal import uids
from lab.drive.opal.calls import encode_call
from lab.drive.opal.packets import COM_ID, Message, pack
from lab.drive.tests.batches import CALLS_A_SESSION, Batch, seeded
from lab.drive.tests.opal_host import (
    OpalSession,
    RefusedError,
    msid,
    set_up_range,
    take_ownership,
)
from lab.drive.tests.process import NQN, PSID, Drive

DEADLINE_S = 30
CHECK_EVERY_BATCHES = 128
_GROWTH_LIMIT_KIB = 16 << 10
_ADMIN1, _USER2 = uids.ADMIN_AUTHORITIES[0], uids.USER_AUTHORITIES[1]
_STACK_RESET = struct.pack(">HHI", COM_ID, 0, 2).ljust(512, b"\0")
_SQE = struct.Struct("<BBHI16xQI3xB6I")


class FindingError(Exception):
    """Something that a drive must not do."""


class Target:
    """A drive under fuzz; `sealed` says that nobody who knows a PIN sends inputs to it."""

    def __init__(self, folder: Path, sealed: bool) -> None:
        folder.mkdir()
        self.drive = Drive(folder, opal=True, block_bytes=512)  # as in the corpus
        self.drive.start()
        self._sealed = sealed
        self._pin, self._user_pin = os.urandom(16), os.urandom(16)
        self._admin: Initiator | None = None
        self.reset()
        self._state = self._state_hash()
        self._memory_kib = 0

    def reset(self) -> None:
        """A drive with an owner and a locked range of user 2, whatever it was before."""
        self.drive.ask("power-cycle")
        host = self.drive.connect()
        with OpalSession(host, uids.ADMIN_SP, uids.PSID, PSID) as session:
            session.call(uids.ADMIN_SP, uids.REVERT)
        take_ownership(host, self._pin)
        set_up_range(host, self._pin, 1, (256, 256), self._user_pin)
        host.close()
        self.drive.hosts.clear()
        self.drive.ask("power-cycle")

    def close(self) -> None:
        """Ends the drive's process, as its user does."""
        if self.drive.process is not None:
            self.drive.process.terminate()
            self.drive.process.wait(DEADLINE_S)

    def _state_hash(self) -> str:
        return hashlib.sha256(self.drive.path("state.json").read_bytes()).hexdigest()

    def run(self, batch: Batch) -> None:
        """Sends one batch; raises FindingError for a command or connection without an end."""
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
            commands = [part for (p, c), data in pairs for part in _exchange(p, c, data)]
        elif batch.kind == "call":
            commands = self._calls_of_anybody(host, batch)
        else:
            numbers = self._open(host, batch)
            packets = [pack(Message(*numbers, payload)) for payload in batch.inputs]
            commands = [part for data in packets for part in _exchange(1, COM_ID, data)]
            host = self._connection()
        try:
            host._sock.sendall(b"".join(commands))
            for _ in commands:
                _read_answer(host)
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
                commands += _exchange(2, COM_ID, _STACK_RESET)
                commands += _exchange(1, COM_ID, pack(Message(0, 0, start)))
                tper_number += 1
            packet = pack(Message(tper_number, host_number, payload))
            commands += _exchange(1, COM_ID, packet)
        return commands

    def _open(self, host: Initiator, batch: Batch) -> tuple[int, int]:
        """The numbers of a session for the batch's calls."""
        if host.security_send(2, COM_ID, _STACK_RESET).status:
            raise FindingError("a stack reset was refused")
        sp = uids.ADMIN_SP if batch.on == "admin" else uids.LOCKING_SP
        if batch.kind == "call":
            session = OpalSession(host, sp)
            return session.tper_number, session.host_number
        authority = uids.SID if batch.on == "admin" else _ADMIN1
        try:
            session = OpalSession(host, sp, authority, self._pin)
        except RefusedError:
            self._admin = None
            host.close()
            self.reset()
            return self._open(self._connection(), batch)
        return session.tper_number, session.host_number

    def check(self) -> None:
        """Raises FindingError unless the drive is in order; starts over with a power cycle."""
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
        if self._sealed:
            if self._state_hash() != self._state:
                raise FindingError("the state has changed without authority")
            self._serve_others()
        self._check_growth()

    def _serve_others(self) -> None:
        host = Initiator(self.drive.port, NQN)
        if not msid(host):
            raise FindingError("the drive has no MSID")
        with OpalSession(host, uids.LOCKING_SP, _USER2, self._user_pin) as session:
            if session.get(uids.LOCKING_ROWS[1], 3, 8) != {3: 256, 4: 256, 5: 1, 6: 1, 7: 1, 8: 1}:
                raise FindingError("the range is not what it was")
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


def connect_pdus(queue_id: int, controller_id: int) -> bytes:
    """ICReq and Connect."""
    data = bytearray(1024)
    struct.pack_into("<H", data, 16, controller_id)
    data[256 : 256 + len(NQN)] = NQN.encode()
    sqe = _SQE.pack(0x7F, 0x40, 0, 1, 0, 1024, SGL_IN_CAPSULE, queue_id << 16, 127, 0, 0, 0, 0)
    header = COMMON.pack(PDU_COMMAND, 0, 72, 72, 72 + len(data))
    return IC.pack(0, 0, 128, 0, 128, 0, 0, 0, 0) + header + sqe + bytes(data)


def _exchange(protocol: int, com_id: int, data: bytes) -> tuple[bytes, bytes]:
    """PDUs of a Security Send and of the Security Receive that fetches its answer."""
    address = protocol << 24 | com_id << 8
    send = _SQE.pack(0x81, 0x40, 0, 0, 0, len(data), SGL_IN_CAPSULE, address, len(data), 0, 0, 0, 0)
    receive = _SQE.pack(0x82, 0x40, 1, 0, 0, 2048, SGL_TRANSPORT, address, 2048, 0, 0, 0, 0)
    return (
        COMMON.pack(PDU_COMMAND, 0, 72, 72, 72 + len(data)) + send + data,
        COMMON.pack(PDU_COMMAND, 0, 72, 0, 72) + receive,
    )


def _read_answer(host: Initiator) -> None:
    header = host._receive(24)
    kind, _, _, _, length = COMMON.unpack_from(header)
    if kind == PDU_C2H_DATA:
        host._receive(length - 24)


def fuzz(batches: Iterator[Batch], folder: Path, kept: Path) -> int:
    """Runs the batches and returns the number of inputs; raises FindingError and fills `kept`."""
    sealed, owned = Target(folder / "sealed", True), Target(folder / "owned", False)
    count, since = 0, list[Batch]()
    try:
        for number, batch in enumerate(batches, 1):
            since.append(batch)
            (owned if batch.kind == "owner" else sealed).run(batch)
            count += len(batch.inputs)
            if number % CHECK_EVERY_BATCHES == 0:
                sealed.check()
                owned.check()
                since.clear()
        sealed.check()
        owned.check()
    except Exception as error:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text("".join(f"{batch.dump()}\n" for batch in since))
        raise FindingError(f"{error}; what was sent is in {kept}") from error
    finally:
        sealed.close()
        owned.close()
    return count


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 nothing found, 1 a finding."""
    parser = argparse.ArgumentParser(prog="python -m lab.drive.tests.fuzz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--replay", type=Path, help="what an earlier finding left")
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz/last.jsonl"))
    options = parser.parse_args(arguments)
    batches = seeded(options.seed, options.inputs)
    if options.replay:
        batches = map(Batch.load, options.replay.read_text().splitlines())
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        try:
            count = fuzz(batches, Path(folder), options.keep)
        except FindingError as finding:
            print(f"fde: {finding}", file=sys.stderr)
            for log in Path(folder).glob("*/log"):
                print(log.read_text()[-3000:], file=sys.stderr)
            return 1
    seconds = time.monotonic() - begin
    print(f"{count} inputs in {seconds:.0f} s ({count / seconds:.0f} a second), nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
