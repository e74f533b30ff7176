"""The host's side of Opal, for tests: sessions and method calls over Security Send/Receive."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from lab.drive.initiator import Initiator
from lab.drive.opal import uids
from lab.drive.opal.calls import encode_call
from lab.drive.opal.packets import COM_ID, Message, pack, unpack
from lab.drive.opal.tokens import Control, Named, Value, decode, parse
from lab.drive.opal.uids import Status

_NUMBERS = itertools.count(0x41)


def exchange(host: Initiator, message: Message) -> bytes:
    """Sends one packet and returns the tokens of the answer; empty if there is none."""
    payload = pack(message).ljust(2048, b"\0")
    assert host.security_send(1, COM_ID, payload).status == 0
    answer = host.security_receive(1, COM_ID).data
    return unpack(answer).payload if any(answer[16:20]) else b""


class RefusedError(Exception):
    """The drive answered with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(Status(status).name)
        self.status = status


class OpalSession:
    """An open session; a context manager that ends it."""

    def __init__(
        self,
        host: Initiator,
        sp: bytes,
        authority: bytes = uids.ANYBODY,
        pin: bytes | None = None,
        write: bool = True,
    ) -> None:
        self._host = host
        self.host_number = next(_NUMBERS)
        parameters: list[Value] = [self.host_number, sp, int(write)]
        if pin is not None:
            parameters.append(Named(0, pin))
        if authority != uids.ANYBODY:
            parameters.append(Named(3, authority))
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

    def call(self, invoking: bytes, method: bytes, *parameters: Value) -> list[Value]:
        """The results; raises RefusedError with the status."""
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


def msid(host: Initiator) -> bytes:
    with OpalSession(host, uids.ADMIN_SP) as session:
        value = session.get(uids.C_PIN_MSID, 3, 4)[3]
    assert isinstance(value, bytes)
    return value


def take_ownership(host: Initiator, pin: bytes) -> None:
    """SID gets `pin`, the Locking SP is activated."""
    with OpalSession(host, uids.ADMIN_SP, uids.SID, msid(host)) as session:
        session.set(uids.C_PIN_SID, {3: pin})
    with OpalSession(host, uids.ADMIN_SP, uids.SID, pin) as session:
        assert session.call(uids.LOCKING_SP, uids.ACTIVATE) == []


def _expression(users: Sequence[bytes]) -> list[Value]:
    terms: list[Value] = [Named(uids.HALF_AUTHORITY_REF, user) for user in users]
    return terms + [Named(uids.HALF_BOOLEAN_ACE, 1)] * (len(users) - 1)


def set_up_range(
    host: Initiator, admin_pin: bytes, index: int, extent: tuple[int, int], user_pin: bytes
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


def lock(host: Initiator, user_pin: bytes, index: int, locked: bool = True) -> None:
    """Locks or unlocks a range as its user."""
    user = uids.USER_AUTHORITIES[index]
    with OpalSession(host, uids.LOCKING_SP, user, user_pin) as session:
        session.set(uids.LOCKING_ROWS[index], {7: int(locked), 8: int(locked)})
