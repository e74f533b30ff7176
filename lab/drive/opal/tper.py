"""The trusted peripheral: discovery, ComIDs, the session manager, and power cycles."""

from __future__ import annotations

import itertools
import logging
import struct
import threading

from lab.drive.opal.admin_sp import AdminSp
from lab.drive.opal.core import Core
from lab.drive.opal.locking_sp import LockingSp
from lab.drive.opal.packets import (
    COM_ID,
    MAX_COM_PACKET_BYTES,
    Message,
    PacketError,
    pack,
    pack_empty,
    unpack,
)
from lab.drive.opal.session import Call, Session, encode_call, parse_call
from lab.drive.opal.tokens import Named, TokenError, Value
from lab.drive.opal.uids import (
    ADMIN_SP,
    ADMINS,
    ANYBODY,
    LOCKING_SP,
    PROPERTIES,
    SESSION_MANAGER,
    START_SESSION,
    SYNC_SESSION,
    USERS,
    MethodError,
    Status,
)

_log = logging.getLogger("drive.opal")
_DISCOVERY_COM_ID = 0x0001
_VERIFY_COM_ID, _STACK_RESET = 1, 2
_FIRST_SESSION = 0x1000
_PROPERTIES = {
    b"MaxMethods": 1,
    b"MaxSubpackets": 1,
    b"MaxPackets": 1,
    b"MaxPacketSize": MAX_COM_PACKET_BYTES - 20,
    b"MaxComPacketSize": MAX_COM_PACKET_BYTES,
    b"MaxResponseComPacketSize": MAX_COM_PACKET_BYTES,
    b"MaxIndTokenSize": MAX_COM_PACKET_BYTES - 56,
    b"MaxAggTokenSize": MAX_COM_PACKET_BYTES - 56,
    b"MaxSessions": 1,
    b"MaxAuthentications": 2,
    b"MaxTransactionLimit": 0,
    b"DefSessionTimeout": 0,
}


class Tper:
    """Security Send and Receive of an Opal drive; one ComID, one session at a time."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._session: Session | None = None
        self._session_owner = 0
        self._numbers = itertools.count(_FIRST_SESSION)
        self._answers: dict[tuple[int, int], bytes] = {}
        self._lock = threading.Lock()
        core.power_on()

    def power_cycle(self) -> None:
        """Ends the session and locks what a loss of power locks."""
        with self._lock:
            self._session = None
            self._answers.clear()
            self._core.power_on()

    def status(self) -> dict[str, object]:
        """The state for the control socket, without any secret."""
        with self._lock:
            state = self._core.state
            ranges = [
                {
                    "range": index,
                    "start": row.start,
                    "length": row.length,
                    "read_locked": not row.readable,
                    "write_locked": not row.writable,
                }
                for index, row in enumerate(state.ranges)
                if index == 0 or row.length
            ]
            return {"locking_active": state.locking_active, "ranges": ranges}

    def forget(self, owner: int) -> None:
        """A host has left: its session and its waiting answers end with it."""
        with self._lock:
            if self._session_owner == owner:
                self._session = None
            for key in [key for key in self._answers if key[0] == owner]:
                del self._answers[key]

    def send(self, owner: int, protocol: int, specific: int, data: bytes) -> bool:
        """Takes a payload and prepares its answer; False if the transport must refuse it."""
        with self._lock:
            if protocol == 2 and specific == COM_ID:
                return self._manage_com_id(owner, data)
            if protocol != 1 or specific != COM_ID:
                return False
            try:
                message = unpack(data)
            except PacketError as error:
                _log.warning("payload refused: %s", error)
                return False
            answer = self._answer(owner, message)
            self._answers[owner, protocol] = pack(answer) if answer else pack_empty()
            return True

    def receive(self, owner: int, protocol: int, specific: int, length: int) -> bytes | None:
        """The answer that waits; one that does not fit stays and announces its size."""
        with self._lock:
            if protocol == 0:
                return struct.pack(">6xH", 3) + b"\0\1\2" if specific == 0 else bytes(4)
            if (protocol, specific) == (1, _DISCOVERY_COM_ID):
                return self._discovery()
            if protocol not in (1, 2) or specific != COM_ID:
                return None
            answer = self._answers.get((owner, protocol), pack_empty())
            if len(answer) > length:
                return pack_empty(len(answer))
            self._answers.pop((owner, protocol), None)
            return answer

    def _discovery(self) -> bytes:
        """Level 0 Discovery: TPer, Locking, Geometry, Opal 2 (Opal 2.01, section 3.1.1)."""
        state, locking = self._core.state, self._core.locking
        flags = 0x01 | state.locking_active << 1 | locking.any_locked << 2 | 0x08 | 0x40
        align = locking.alignment_blocks
        features = struct.pack(">HBBB11x", 0x0001, 0x10, 12, 0x51)
        features += struct.pack(">HBBB11x", 0x0002, 0x10, 12, flags)
        features += struct.pack(
            ">HBBB7xIQQ", 0x0003, 0x10, 28, int(align > 1), locking.block_bytes, align, 0
        )
        features += struct.pack(
            ">HBBHHBHHBB5x", 0x0203, 0x10, 16, COM_ID, 1, 0, ADMINS, USERS, 0, 0
        )
        return struct.pack(">II40x", 44 + len(features), 1) + features

    def _manage_com_id(self, owner: int, data: bytes) -> bool:
        if len(data) < 8:
            return False
        com_id, extension, request = struct.unpack_from(">HHI", data)
        if (com_id, extension) != (COM_ID, 0) or request not in (_VERIFY_COM_ID, _STACK_RESET):
            return False
        if request == _STACK_RESET:
            self._session = None
            self._answers.pop((owner, 1), None)
            body = bytes(4)
        else:
            body = struct.pack(">I", 3 if self._session else 2) + bytes(30)
        header = struct.pack(">HHI2xH", COM_ID, 0, request, len(body))
        self._answers[owner, 2] = header + body
        return True

    def _answer(self, owner: int, message: Message) -> Message | None:
        numbers = (message.tper_session, message.host_session)
        if numbers == (0, 0):
            payload = self._manage_sessions(owner, message.payload)
            return Message(0, 0, payload) if payload else None
        session = self._session
        if session is None or numbers != (session.tper_number, session.host_number):
            return None
        payload = session.handle(message.payload)
        if not session.open:
            self._session = None
        return Message(*numbers, payload)

    # Session manager.

    def _manage_sessions(self, owner: int, payload: bytes) -> bytes | None:
        try:
            call = parse_call(payload)
        except TokenError as error:
            _log.warning("call to the session manager ignored: %s", error)
            return None
        if call.invoking != SESSION_MANAGER:
            return None
        if call.method == PROPERTIES:
            return self._properties(call)
        if call.method == START_SESSION:
            return self._start_session(owner, call)
        return None

    def _properties(self, call: Call) -> bytes:
        own: list[Value] = [Named(name, value) for name, value in _PROPERTIES.items()]
        answer: list[Value] = [own]
        host = call.named.get(0)
        if isinstance(host, list):
            answer.append(Named(0, host))
        return encode_call(SESSION_MANAGER, PROPERTIES, answer)

    def _start_session(self, owner: int, call: Call) -> bytes:
        host_number = call.positional[0] if call.positional else 0
        if not isinstance(host_number, int) or not 0 <= host_number < 1 << 32:
            host_number = 0
        try:
            session = self._open_session(call, host_number)
        except MethodError as error:
            _log.info("session refused: %s", error)
            status = [int(error.status), 0, 0]
            refusal = encode_call(SESSION_MANAGER, SYNC_SESSION, [host_number, 0])
            return refusal[:-5] + bytes([0xF0, *status, 0xF1])
        self._session, self._session_owner = session, owner
        numbers: list[Value] = [host_number, session.tper_number]
        return encode_call(SESSION_MANAGER, SYNC_SESSION, numbers)

    def _open_session(self, call: Call, host_number: int) -> Session:
        match call.positional:
            case [int(), bytes(sp), (0 | 1) as write]:
                pass
            case _:
                raise MethodError(Status.INVALID_PARAMETER)
        if self._session is not None:
            raise MethodError(Status.NO_SESSIONS_AVAILABLE)
        provider: AdminSp | LockingSp
        if sp == ADMIN_SP:
            provider = AdminSp(self._core)
        elif sp == LOCKING_SP and self._core.state.locking_active:
            provider = LockingSp(self._core)
        else:
            raise MethodError(Status.INVALID_PARAMETER)
        number = _FIRST_SESSION + next(self._numbers) % (1 << 31)
        session = Session(self._core, provider, (number, host_number), bool(write))
        authority, pin = call.named.get(3, ANYBODY), call.named.get(0, b"")
        if not isinstance(authority, bytes) or not isinstance(pin, bytes):
            raise MethodError(Status.INVALID_PARAMETER)
        if authority != ANYBODY:
            session.log_in(authority, pin)
        return session
