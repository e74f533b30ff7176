"""The trusted peripheral: ComIDs, the session manager, resets, and faults of its firmware."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from dataclasses import dataclass, field

from ..state import HARDWARE, PROGRAMMATIC
from ..vices import Vices
from . import admin_sp, locking_sp, negotiation, uids
from .calls import Call, CallRecord, encode_call, encode_result, parse_call
from .core import Core
from .packets import (
    COM_ID,
    MAX_COM_PACKET_BYTES,
    Message,
    PacketError,
    TokenError,
    Value,
    decode,
    pack,
    pack_empty,
    unpack,
)
from .session import Session
from .uids import MethodError, Status

_log = logging.getLogger("drive.opal")
_FIRST_SESSION = 0x1000
_HOST_CHALLENGE, _HOST_SIGNING_AUTHORITY, _SESSION_TIMEOUT = 0, 3, 5


@dataclass
class Host:
    """The TPer's state for one controller: waiting answers by protocol, and its size limit."""

    answers: dict[int, bytes] = field(default_factory=dict)
    max_com_packet_bytes: int = negotiation.INITIAL_HOST_BYTES


class Tper:
    """Security Send and Receive of an Opal drive; one ComID, one session at a time.

    With `block_sid_feature` the feature set "Block SID Authentication" is offered. While
    `refusing` is true the drive claims Opal and fails every method, as some drives do.
    """

    def __init__(self, core: Core, block_sid_feature: bool) -> None:
        self.refusing = False
        self._core = core
        self._block_sid_feature = block_sid_feature
        self._block_sid_until_reset = False
        self._providers = {
            uids.ADMIN_SP: admin_sp.build(core),
            uids.LOCKING_SP: locking_sp.build(core),
        }
        self._record = CallRecord()
        self._session: Session | None = None
        self._session_owner = 0
        self._session_timeout_ns = 0
        self._session_used_ns = 0
        self._numbers = itertools.count(_FIRST_SESSION)
        self._hosts: dict[int, Host] = {}
        self._lock = threading.Lock()
        core.power_on()

    # Events from outside.

    def power_cycle(self) -> None:
        """End the session and lock what a loss of power locks."""
        with self._lock:
            self._abort()
            self._core.power_on()

    def reset(self) -> None:
        """Reset the hardware, which for NVMe is a reset of one controller.

        Other controllers' sessions continue, unless the reset locks something.
        """
        with self._lock:
            if self._core.locking.heeds(HARDWARE):
                self._reset(HARDWARE)
            if self._block_sid_until_reset:
                self._core.sid_blocked = False

    def _reset(self, event: int) -> None:
        self._abort()
        self._core.reset(event)

    def _abort(self) -> None:
        self._end_session()
        self._hosts.clear()

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    def forget(self, owner: int) -> None:
        """End the session and the waiting answers of a host that has left."""
        with self._lock:
            if self._session_owner == owner:
                self._end_session()
            self._hosts.pop(owner, None)

    # What firmware and wear do to drives, for tests of what hosts make of it.

    def lock_out(self, name: str) -> None:
        """Bring an authority ("SID", "Admin1", "User3", …) to its try limit.

        Raises ValueError, with the valid names.
        """
        with self._lock:
            self._core.lock_out(name)

    def block_sid(self) -> None:
        """Block the SID until the next power cycle, as firmware does before it boots a system."""
        with self._lock:
            self._core.sid_blocked = True

    def show_shadow(self) -> None:
        """Leave the MBR shadow on; raises ValueError while the Locking SP is not active."""
        with self._lock:
            if not self._core.state.locking_active:
                raise ValueError("the MBR shadow is there once the Locking SP is active")
            with self._core.change():
                self._core.state.mbr.enabled, self._core.state.mbr.done = True, False

    def set_vices(self, vices: Vices) -> None:
        """Set the drive's vices from now on."""
        with self._lock:
            self._core.locking.set_vices(vices)

    def status(self) -> dict[str, object]:
        """Return the state for the control socket, without any secret."""
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
            return {
                "locking_active": state.locking_active,
                "ranges": ranges,
                "shadowed": state.mbr.shadows,
                "session": self._session is not None,
                "sid_blocked": self._core.sid_blocked,
                "refusing": self.refusing,
            }

    def calls(self) -> list[dict[str, object]]:
        """Return how often each method ran on each table since the start, and how it ended."""
        with self._lock:
            return self._record.as_list()

    # The transport's side.

    def send(self, owner: int, protocol: int, specific: int, data: bytes) -> bool:
        """Take a payload and prepare its answer; False if the transport must refuse it."""
        with self._lock:
            host = self._hosts.setdefault(owner, Host())
            if protocol == 2:
                return self._manage(owner, host, specific, data)
            if protocol != 1 or specific != COM_ID or len(data) > MAX_COM_PACKET_BYTES:
                return False
            try:
                message = unpack(data)
            except PacketError as error:
                _log.warning("payload refused: %s", error)
                return False
            answer = self._answer(owner, host, message)
            host.answers[protocol] = pack(answer) if answer else pack_empty()
            return True

    def receive(self, owner: int, protocol: int, specific: int, length: int) -> bytes | None:
        """Return the waiting answer; one that does not fit stays and announces its size."""
        with self._lock:
            if protocol == 0:
                return negotiation.supported_protocols(specific)
            if (protocol, specific) == (1, negotiation.DISCOVERY):
                return negotiation.discover(
                    self._core, self._block_sid_feature, self._block_sid_until_reset
                )
            if protocol not in (1, 2) or specific != COM_ID:
                return None
            host = self._hosts.setdefault(owner, Host())
            answer = host.answers.get(protocol, pack_empty())
            if len(answer) > length:
                return pack_empty(len(answer))
            host.answers.pop(protocol, None)
            return answer

    def _manage(self, owner: int, host: Host, specific: int, data: bytes) -> bool:
        """Handle security protocol 2: ComID management, TPER_RESET, Block SID."""
        if specific == negotiation.TPER_RESET and self._core.state.programmatic_reset:
            self._reset(PROGRAMMATIC)
        elif specific == negotiation.BLOCK_SID and self._block_sid_feature and data:
            self._core.sid_blocked = True
            self._block_sid_until_reset = bool(data[0] & 1)
        elif specific == COM_ID:
            request = negotiation.parse_com_id_request(data)
            if request is None:
                return False
            if request == negotiation.STACK_RESET:
                if self._session_owner == owner:  # not another controller's
                    self._end_session()
                host.answers.pop(1, None)
            host.answers[2] = negotiation.com_id_answer(
                request, associated=self._session is not None
            )
        else:
            return False
        return True

    def _answer(self, owner: int, host: Host, message: Message) -> Message | None:
        numbers = (message.tper_session, message.host_session)
        if numbers == (0, 0):
            payload = self._manage_sessions(owner, host, message.payload)
            return Message(0, 0, payload) if payload else None
        session = self._session
        if session is None or numbers != (session.tper_number, session.host_number):
            return None
        if self._session_owner != owner:
            return None
        self._session_used_ns = time.monotonic_ns()
        if self.refusing:
            return Message(*numbers, encode_result([], Status.FAIL))
        answer = Message(*numbers, session.handle(message.payload))
        if not session.open:
            self._session = None
        if len(pack(answer)) > host.max_com_packet_bytes:
            return Message(*numbers, encode_result([], Status.RESPONSE_OVERFLOW))
        return answer

    # Session manager.

    def _manage_sessions(self, owner: int, host: Host, payload: bytes) -> bytes | None:
        try:
            call = parse_call(decode(payload))
        except TokenError as error:
            _log.warning("call to the session manager ignored: %s", error)
            return None
        if call.invoking != uids.SESSION_MANAGER:
            return None
        if call.method == uids.PROPERTIES:
            accepted = negotiation.accept_properties(call)
            host.max_com_packet_bytes = accepted.get(b"MaxComPacketSize", host.max_com_packet_bytes)
            self._record.add("Properties", call.invoking, Status.SUCCESS)
            return encode_call(
                uids.SESSION_MANAGER, uids.PROPERTIES, negotiation.properties_answer(accepted)
            )
        if call.method == uids.START_SESSION:
            return self._start_session(owner, call)
        return None

    def _start_session(self, owner: int, call: Call) -> bytes:
        match call.positional:
            case [int(number), *_] if 0 <= number < 1 << 32:
                host_number = number
            case _:
                host_number = 0
        numbers: list[Value] = [host_number, 0]
        status = Status.SUCCESS
        try:
            self._session = self._open_session(call, host_number)
            self._session_owner = owner
            self._session_used_ns = time.monotonic_ns()
            numbers = [host_number, self._session.tper_number]
        except MethodError as error:
            _log.info("session refused: %s", error)
            status = error.status
        self._record.add("StartSession", call.invoking, status)
        return encode_call(uids.SESSION_MANAGER, uids.SYNC_SESSION, numbers, status)

    def _open_session(self, call: Call, host_number: int) -> Session:
        if self.refusing:
            raise MethodError(Status.FAIL)
        optional_names = {_HOST_CHALLENGE, _HOST_SIGNING_AUTHORITY, _SESSION_TIMEOUT}
        match call.positional:
            case [int(number), bytes(sp), (0 | 1) as write] if (
                number == host_number and call.named.keys() <= optional_names
            ):
                pass
            case _:
                raise MethodError(Status.INVALID_PARAMETER)
        timeout_ms = call.named.get(_SESSION_TIMEOUT, 0)
        authority = call.named.get(_HOST_SIGNING_AUTHORITY, uids.ANYBODY)
        pin = call.named.get(_HOST_CHALLENGE, b"")
        if (
            not isinstance(authority, bytes)
            or not isinstance(pin, bytes)
            or not isinstance(timeout_ms, int)
            or timeout_ms < 0
            or sp not in self._providers
            or (sp == uids.LOCKING_SP and not self._core.state.locking_active)
        ):
            raise MethodError(Status.INVALID_PARAMETER)
        idle_ns = time.monotonic_ns() - self._session_used_ns
        if self._session_timeout_ns and idle_ns > self._session_timeout_ns:
            self._end_session()
        if self._session is not None or self._core.locking.vices.no_session:
            raise MethodError(Status.NO_SESSIONS_AVAILABLE)
        number = _FIRST_SESSION + next(self._numbers) % (1 << 31)
        provider = self._providers[sp]
        session = Session(self._core, provider, (number, host_number), bool(write), self._record)
        if authority != uids.ANYBODY:
            session.log_in(authority, pin)
        self._session_timeout_ns = timeout_ms * 1_000_000
        return session
