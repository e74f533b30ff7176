"""The host's side of Opal, for tests: sessions and method calls over Security Send/Receive."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from drive.factory import open_tper
from drive.identify import DriveConfig
from drive.initiator import Completion
from drive.media import EncryptedMedia, open_backing
from drive.opal import uids
from drive.opal.calls import encode_call
from drive.opal.core import new_state
from drive.opal.packets import COM_ID, Control, Message, Named, Value, decode, pack, parse, unpack
from drive.opal.tper import Tper
from drive.opal.uids import Status
from drive.state import StateFile
from drive.stats import Stats
from drive.tests.process import PSID, Drive

OWNER, USER2 = b"owner's pin", b"second user's pin"
_NUMBERS = itertools.count(0x41)
_BLOCKS = 4096


class Host(Protocol):
    """Security Send and Receive, over NVMe/TCP or straight into a TPer."""

    def security_send(self, protocol: int, specific: int, data: bytes) -> Completion: ...

    def security_receive(self, protocol: int, specific: int, length: int = 2048) -> Completion: ...


class Direct:
    """A host that calls a TPer without a transport."""

    def __init__(self, tper: Tper, owner: int = 1) -> None:
        self._tper = tper
        self._owner = owner

    @staticmethod
    def build(
        folder: Path, block_sid_feature: bool = False, key_bits: int = 256
    ) -> tuple[Tper, EncryptedMedia]:
        """Return a TPer as it leaves the factory, with its files in `folder`, and what it locks."""
        size_bytes = _BLOCKS * 4096
        media = EncryptedMedia(
            open_backing(folder / "disk.img", size_bytes), 4096, Stats(folder / "stats")
        )
        config = DriveConfig("nqn.2026-01.x:direct", "model", "serial", 4096, _BLOCKS, opal=True)
        state = new_state(PSID, config, key_bits)
        file = StateFile(folder / "state.json")
        return open_tper(file, state, media, config, block_sid_feature), media

    @staticmethod
    def make(folder: Path, block_sid_feature: bool = False, key_bits: int = 256) -> Tper:
        """Return the TPer alone."""
        return Direct.build(folder, block_sid_feature, key_bits)[0]

    def security_send(self, protocol: int, specific: int, data: bytes) -> Completion:
        taken = self._tper.send(self._owner, protocol, specific, data)
        return Completion(0 if taken else 0x4002, 0, b"")

    def security_receive(self, protocol: int, specific: int, length: int = 2048) -> Completion:
        data = self._tper.receive(self._owner, protocol, specific, length)
        return Completion(0x4002 if data is None else 0, 0, (data or b"").ljust(length, b"\0"))


def features(host: Host) -> dict[int, bytes]:
    """Return the feature descriptors of Level 0 Discovery by their codes, without their headers."""
    data = host.security_receive(1, 1).data
    end = 4 + int(struct.unpack_from(">I", data)[0])
    descriptors, position = {}, 48
    while position < end:
        code, length = struct.unpack_from(">HxB", data, position)
        descriptors[code] = data[position + 4 : position + 4 + length]
        position += 4 + length
    return descriptors


def exchange(host: Host, message: Message) -> bytes:
    """Send one packet and return the tokens of the answer; empty if there is none."""
    payload = pack(message).ljust(2048, b"\0")
    assert host.security_send(1, COM_ID, payload).status == 0
    answer = host.security_receive(1, COM_ID, 65536).data
    return unpack(answer).payload if any(answer[16:20]) else b""


class RefusedError(Exception):
    """The drive answered with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(Status(status).name)
        self.status = status


def refused(action: Callable[..., object], *arguments: object) -> int:
    """Return the status with which the drive refuses it."""
    with pytest.raises(RefusedError) as caught:
        action(*arguments)
    return caught.value.status


class OpalSession:
    """An open session; a context manager that ends it."""

    def __init__(
        self,
        host: Host,
        sp: bytes,
        authority: bytes = uids.ANYBODY,
        pin: bytes | None = None,
        *,
        write: bool = True,
        timeout_ms: int | None = None,
    ) -> None:
        self._host = host
        self.host_number = next(_NUMBERS)
        parameters: list[Value] = [self.host_number, sp, int(write)]
        if pin is not None:
            parameters.append(Named(0, pin))
        if authority != uids.ANYBODY:
            parameters.append(Named(3, authority))
        if timeout_ms is not None:
            parameters.append(Named(5, timeout_ms))
        call = encode_call(uids.SESSION_MANAGER, uids.START_SESSION, parameters)
        items = parse(decode(exchange(host, Message(0, 0, call))))
        assert items[:3] == [Control.CALL, uids.SESSION_MANAGER, uids.SYNC_SESSION]
        status, numbers = items[5], items[3]
        assert isinstance(status, list) and isinstance(numbers, list)
        if status[0] != 0:
            assert isinstance(status[0], int)
            raise RefusedError(status[0])
        assert numbers[0] == self.host_number and isinstance(numbers[1], int)
        self.tper_number = numbers[1]

    def __enter__(self) -> OpalSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw(b"\xfa")

    def raw(self, payload: bytes) -> bytes:
        return exchange(self._host, Message(self.tper_number, self.host_number, payload))

    def properties(self, limits: dict[bytes, int]) -> None:
        """Tells the TPer the host's limits, which outlast the session."""
        limit_values: list[Value] = [Named(name, value) for name, value in limits.items()]
        call = encode_call(uids.SESSION_MANAGER, uids.PROPERTIES, [Named(0, limit_values)])
        assert exchange(self._host, Message(0, 0, call))

    @staticmethod
    def encode(invoking: bytes, method: bytes, *parameters: Value) -> bytes:
        return encode_call(invoking, method, list(parameters))

    def call(self, invoking: bytes, method: bytes, *parameters: Value) -> list[Value]:
        """Return the results; raises RefusedError with the status."""
        answer = parse(decode(self.raw(encode_call(invoking, method, list(parameters)))))
        match answer:
            case [list(results), Control.END_OF_DATA, [int(status), 0, 0]]:
                if status:
                    assert results == []
                    raise RefusedError(status)
                return results
        raise AssertionError(answer)

    def get(self, row: bytes, first: int = 0, last: int = 64) -> dict[int, Value]:
        results = self.call(row, uids.GET, [Named(3, first), Named(4, last)])
        assert isinstance(results[0], list)
        pairs = [pair for pair in results[0] if isinstance(pair, Named)]
        return {pair.name: pair.value for pair in pairs if isinstance(pair.name, int)}

    def set(self, row: bytes, values: dict[int, Value]) -> None:
        pairs: list[Value] = [Named(column, value) for column, value in values.items()]
        assert self.call(row, uids.SET, Named(1, pairs)) == []


def session_when_free(drive: Drive, sp: bytes, authority: bytes, pin: bytes) -> OpalSession:
    """Return a session as soon as the drive has noticed that the last one's host is gone."""
    while True:
        try:
            return OpalSession(drive.connect(), sp, authority, pin)
        except RefusedError as error:
            if error.status != Status.NO_SESSIONS_AVAILABLE:
                raise


def msid(host: Host) -> bytes:
    with OpalSession(host, uids.ADMIN_SP) as session:
        value = session.get(uids.C_PIN_MSID, 3, 4)[3]
    assert isinstance(value, bytes)
    return value


def take_ownership(host: Host, pin: bytes) -> None:
    """SID gets `pin`, the Locking SP is activated."""
    with OpalSession(host, uids.ADMIN_SP, uids.SID, msid(host)) as session:
        session.set(uids.C_PIN_SID, {3: pin})
    with OpalSession(host, uids.ADMIN_SP, uids.SID, pin) as session:
        assert session.call(uids.LOCKING_SP, uids.ACTIVATE) == []


def _expression(users: Sequence[bytes]) -> list[Value]:
    terms: list[Value] = [Named(uids.HALF_AUTHORITY_REF, user) for user in users]
    return terms + [Named(uids.HALF_BOOLEAN_ACE, 1)] * (len(users) - 1)


def set_up_range(
    host: Host, admin_pin: bytes, index: int, extent: tuple[int, int], user_pin: bytes
) -> None:
    """User `index` + 1 and a locking-enabled range for it, in the order that cryptsetup has."""
    user = uids.USER_AUTHORITIES[index]
    with OpalSession(host, uids.LOCKING_SP, uids.ADMIN_AUTHORITIES[0], admin_pin) as session:
        session.set(user, {5: 1})
        session.set(uids.ACE_RANGE_GET[index], {3: _expression([user, uids.ADMINS_CLASS])})
        for rows in (uids.ACE_READ_LOCKED, uids.ACE_WRITE_LOCKED):
            session.set(rows[index], {3: _expression([user, user])})
        session.set(uids.c_pin(user), {3: user_pin})
        row = uids.LOCKING_ROWS[index]
        session.set(row, {3: extent[0], 4: extent[1], 5: 1, 6: 1})


def own_with_range(host: Host) -> None:
    """Take ownership as `OWNER`, and set up a range of 256 blocks at 256 for user 2."""
    take_ownership(host, OWNER)
    set_up_range(host, OWNER, 1, (256, 256), USER2)


def lock(host: Host, user_pin: bytes, index: int, locked: bool = True) -> None:
    """Locks or unlocks a range as its user."""
    user = uids.USER_AUTHORITIES[index]
    with OpalSession(host, uids.LOCKING_SP, user, user_pin) as session:
        session.set(uids.LOCKING_ROWS[index], {7: int(locked), 8: int(locked)})
