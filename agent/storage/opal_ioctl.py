"""Opal calls of the kernel that cryptsetup does not offer (linux/sed-opal.h of 6.12)."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import struct
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from agent.storage import secrets
from agent.storage.secrets import ADMIN1, PSID, SID
from contract.errors import AgentError
from contract.problem import wordings_of

_WRITE, _READ = 1, 2
_KEY = struct.Struct("<BB6x256s")  # locking range, key length, key
_SESSION = struct.Struct(f"<II{_KEY.size}s")  # single-user mode, who, key
_LOCK = struct.Struct(f"<{_SESSION.size}sI4x")  # session, state
_RANGE = struct.Struct(f"<{_SESSION.size}sQQIII4x")  # session, start, length, RLE, WLE, state
_SETUP = struct.Struct(f"<QQII{_SESSION.size}s")  # start, length, RLE, WLE, session
_STATUS = struct.Struct("<II")
_ACTIVATE = struct.Struct(f"<{_KEY.size}sIB9s2x")  # key, single-user mode, number of ranges, ranges
_DISCOVERY = struct.Struct("<QQ")  # address and size of what is to be filled

# TCG method status codes (TCG Storage Architecture Core Specification 2.01, 5.1.5).
NOT_AUTHORISED = 0x01
SP_BUSY = 0x03
NO_SESSIONS = 0x07
LOCKED_OUT = 0x12

FAIL = 0x3F
_LAST_STATUS = LOCKED_OUT  # but for FAIL; what is larger is the transport's status
# What the kernel returns for a device, or a request, that it does not know as Opal's; to the
# requests that ask what is there, also EINVAL, which to others is an empty answer of the drive.
_NO_OPAL = (errno.ENOTTY, errno.EOPNOTSUPP)
_NO_OPAL_THERE = (*_NO_OPAL, errno.EINVAL)

_ADMIN1 = 0
_refused: dict[tuple[str, str], OpalError] = {}  # by serial number and authority
_STATES = {1: "read-only", 2: "unlocked", 4: "locked"}
_UNLOCKED, _LOCKED = 2, 4


def _request(direction: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | ord("p") << 8 | number


_LOCK_UNLOCK = _request(_WRITE, 221, _LOCK.size)
_TAKE = _request(_WRITE, 222, _KEY.size)
_ACTIVATE_LOCKING = _request(_WRITE, 223, _ACTIVATE.size)
_REVERT = _request(_WRITE, 226, _KEY.size)
_SETUP_RANGE = _request(_WRITE, 227, _SETUP.size)
_PSID_REVERT = _request(_WRITE, 232, _KEY.size)
_GET_STATUS = _request(_READ, 236, _STATUS.size)
_GET_RANGE = _request(_WRITE, 237, _RANGE.size)
_DISCOVER = _request(_WRITE, 239, _DISCOVERY.size)
# Level 0 discovery (Opal SSC 2.01, 3.1.1): a header, then features: code, version, length, body.
_HEADER_BYTES, _FEATURE_BYTES = 48, 4
_LOCKING, _GEOMETRY = 0x0002, 0x0003
_ENCRYPTS = 1 << 3
_ALIGNMENT = struct.Struct(">B7xIQQ")  # whether it must be kept, block, granularity, lowest LBA
_BLOCK_SID = 0x0402  # TCG Storage Feature Set: Block SID Authentication 1.01, 4.1


_CODES = {
    NOT_AUTHORISED: "not-authorised",
    LOCKED_OUT: "locked-out",
    SP_BUSY: "no-session",
    NO_SESSIONS: "no-session",
}


class OpalError(AgentError):
    """The drive or the kernel refused an Opal call, or the drive is not as it must be."""

    WORDINGS = wordings_of("agent/storage", "OpalError")

    @property
    def status(self) -> int:
        """Read the Opal status of a disk or its partition.

        Raises OpalError if the kernel sees no Opal there, or if the drive does not answer: the
        kernel then returns no flags at all, which does not mean a drive without an owner.
        """
        return int(self.facts.get("status") or 0)

    @property
    def unanswered(self) -> bool:
        """Whether the drive did not answer: it may have done what it was asked, or may yet."""
        return self.code == "no-answer"

    @property
    def number(self) -> int:
        """The kernel's error number, or 0."""
        return int(self.facts.get("number") or 0)


@dataclass(frozen=True)
class Status:
    """Flags of level 0 discovery."""

    supported: bool
    locking_supported: bool
    locking_enabled: bool
    locked: bool
    mbr_enabled: bool
    mbr_done: bool


@dataclass(frozen=True)
class RangeStatus:
    """A locking range: place in blocks of the disk, lock enables, and its present state."""

    start_blocks: int
    length_blocks: int
    read_lock_enabled: bool
    write_lock_enabled: bool
    state: str

    @property
    def off(self) -> bool:
        """Whether the range never locks."""
        return not (self.read_lock_enabled or self.write_lock_enabled)


@dataclass(frozen=True)
class Sid:
    """State of the SID, from the feature Block SID: it has an owner's PIN; it is blocked."""

    taken: bool
    blocked: bool


@dataclass(frozen=True)
class Geometry:
    """Blocks in which locking ranges are counted, and their alignment.

    `alignment_blocks` is 1 if ranges may begin and end anywhere.
    """

    block_bytes: int
    alignment_blocks: int
    lowest_lba: int


@dataclass(frozen=True)
class Discovery:
    """Level 0 discovery beyond `Status`; None for a feature that the drive does not list."""

    sid: Sid | None = None
    geometry: Geometry | None = None
    encrypts: bool | None = None


SILENT = Discovery()


def discover(device: str) -> Discovery:
    """Read the discovery without a PIN; empty if the kernel (before 6.6) does not pass it on.

    Raises OpalError if the drive does not answer.
    """
    page = ctypes.create_string_buffer(2048)
    buffer = bytearray(_DISCOVERY.pack(ctypes.addressof(page), len(page)))
    asked = {"device": device, "action": "report its Opal features"}
    try:
        with _opened(device) as file:
            length = fcntl.ioctl(file, _DISCOVER, buffer, True)
    except OSError as error:
        if error.errno in _NO_OPAL_THERE:
            return SILENT
        raise OpalError("no-answer", **asked, error=error.strerror) from error
    if not any(page.raw[:4]):  # its length; what was returned is a status of the transport
        raise OpalError("no-answer", **asked, error=f"status {length:#x}")
    return parse_discovery(page.raw[: max(length, 0)])


def parse_discovery(page: bytes) -> Discovery:
    """Parse the bytes of a level 0 discovery, however short."""
    at = _HEADER_BYTES
    bodies: dict[int, bytes] = {}
    while at + _FEATURE_BYTES < len(page):
        code, _, length = struct.unpack_from(">HBB", page, at)
        at += _FEATURE_BYTES
        bodies.setdefault(code, page[at : at + length])
        at += length
    sid = bodies.get(_BLOCK_SID)
    locking = bodies.get(_LOCKING)
    geometry = None
    if len(bodies.get(_GEOMETRY, b"")) >= _ALIGNMENT.size:
        aligned, block, granularity, lowest = _ALIGNMENT.unpack_from(bodies[_GEOMETRY])
        needed = bool(aligned & 1) and granularity > 1
        geometry = Geometry(block, granularity if needed else 1, lowest if needed else 0)
    return Discovery(
        Sid(taken=bool(sid[0] & 1), blocked=bool(sid[0] & 2)) if sid else None,
        geometry,
        bool(locking[0] & _ENCRYPTS) if locking else None,
    )


def status(device: str) -> Status:
    """Read the Opal status of a disk or its partition.

    Raises OpalError if the kernel sees no Opal there, or if the drive does not answer: the kernel
    then returns no flags at all, which is not a drive without an owner.
    """
    buffer, action = bytearray(_STATUS.size), "report its Opal status"
    _call(device, _GET_STATUS, buffer, action)
    flags = _STATUS.unpack(buffer)[0]
    reported = Status(*(bool(flags & 1 << bit) for bit in range(6)))
    if not reported.supported:
        raise OpalError("no-answer", device=device, action=action, error="no flags")
    return reported


def find_status(device: str) -> Status | None:
    """Return the Opal status; None for an ordinary disk, or a kernel without Opal.

    Raises OpalError if the drive does not answer.
    """
    try:
        return status(device)
    except OpalError as error:
        if error.number in _NO_OPAL_THERE:
            return None
        raise


def range_status(device: str, number: int, admin_pin: bytes) -> RangeStatus:
    """Read the state of a locking range as Admin1."""
    buffer = bytearray(_RANGE.pack(_session(number, admin_pin), 0, 0, 0, 0, 0))
    _log_in(device, ADMIN1, _GET_RANGE, buffer, f"report the state of locking range {number}")
    _, start, length, read, write, state = _RANGE.unpack(buffer)
    return RangeStatus(start, length, bool(read), bool(write), _STATES.get(state, str(state)))


def lock(device: str, number: int, admin_pin: bytes) -> None:
    """Lock a range as Admin1."""
    buffer = bytearray(_LOCK.pack(_session(number, admin_pin), _LOCKED))
    _log_in(device, ADMIN1, _LOCK_UNLOCK, buffer, f"lock range {number}")


def unlock(device: str, number: int, admin_pin: bytes) -> None:
    """Unlock a range as Admin1."""
    buffer = bytearray(_LOCK.pack(_session(number, admin_pin), _UNLOCKED))
    _log_in(device, ADMIN1, _LOCK_UNLOCK, buffer, f"unlock range {number}")


def enable_locks(device: str, number: int, admin_pin: bytes, *, enabled: bool) -> None:
    """Make a range lockable, or never locking, for reads and writes; its place stays."""
    current = range_status(device, number, admin_pin)
    place = (current.start_blocks, current.length_blocks)
    buffer = bytearray(_SETUP.pack(*place, enabled, enabled, _session(number, admin_pin)))
    _log_in(device, ADMIN1, _SETUP_RANGE, buffer, f"set up locking range {number}")


def take(device: str, pin: bytes) -> None:
    """Set the owner's PIN of a drive in its factory state; this locks nothing."""
    _call(device, _TAKE, bytearray(_key(0, pin)), "accept its owner's PIN")


def activate(device: str, pin: bytes) -> None:
    """Enable locking as the owner, whose PIN becomes Admin1's; this locks no range."""
    buffer = bytearray(_ACTIVATE.pack(_key(0, pin), 0, 1, bytes(9)))
    _log_in(device, SID, _ACTIVATE_LOCKING, buffer, "enable locking")


def revert(device: str, pin: bytes, *, psid: bool = False) -> None:
    """Revert the drive to its factory state by the owner's PIN or by the PSID; erases it."""
    authority, request = (PSID, _PSID_REVERT) if psid else (SID, _REVERT)
    _log_in(device, authority, request, bytearray(_key(0, pin)), "revert to its factory state")
    for login_authority in (SID, ADMIN1):  # a drive in its factory state has refused nobody
        secrets.login(device, login_authority).forget()


def _key(number: int, pin: bytes) -> bytes:
    return _KEY.pack(number, len(pin), pin)


def _session(number: int, pin: bytes) -> bytes:
    return _SESSION.pack(0, _ADMIN1, _key(number, pin))


def _log_in(device: str, authority: str, request: int, buffer: bytearray, action: str) -> None:
    """Make a call with a PIN; a PIN that the drive refused is not tried again by this process.

    Raises PinTriesError if the drive has refused too many.
    """
    login = secrets.login(device, authority)
    if before := _refused.get((login.serial, authority)):
        raise before
    login.check()
    try:
        _call(device, request, buffer, action)
    except OpalError as error:
        if error.status not in (NOT_AUTHORISED, LOCKED_OUT):
            raise
        code = "no-tries"
        if error.status == NOT_AUTHORISED:
            login.count()
            code = "wrong-pin"
        counted = {"refused": login.refused, "most": secrets.MOST}
        counted_error = OpalError(code, **error.facts, **counted, way_out=login.way_out)
        _refused[login.serial, authority] = counted_error
        raise counted_error from error
    login.forget()


def _call(device: str, request: int, buffer: bytearray, action: str) -> None:
    with _opened(device) as file:
        try:
            code = fcntl.ioctl(file, request, buffer, True)
        except OSError as error:
            facts = {"error": error.strerror, "number": error.errno or 0}
            unknown = _NO_OPAL_THERE if request == _GET_STATUS else _NO_OPAL
            cause = "kernel" if error.errno in unknown else "no-answer"
            raise OpalError(cause, device=device, action=action, **facts) from error
    # The kernel hands the TCG method status through as a positive return code, and NVMe's as well.
    if code > _LAST_STATUS and code != FAIL:
        raise OpalError("no-answer", device=device, action=action, error=f"status {code:#x}")
    if code:
        raise OpalError(_CODES.get(code, "status"), device=device, action=action, status=code)


def _opened(device: str) -> FileIO:
    try:
        return Path(device).open("rb", buffering=0)
    except OSError as error:
        raise OpalError("not-opened", device=device, error=error.strerror) from error
