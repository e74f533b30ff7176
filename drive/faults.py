"""Faults on request: their parameters, and the check that the I/O path makes for each command.

A fault is described once and frozen; `Faults` holds those in force and counts them down. Commands
are sorted into kinds: `read`, `write` (Write Zeroes and Dataset Management as well) and
`security` (Security Send).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal

Kind = Literal["read", "write", "security"]
_IO = {"read": {"read"}, "write": {"write"}, "both": {"read", "write"}}
_ALL = {**_IO, "security": {"security"}}
_NUMBER_LIMIT = 1 << 62


class FaultError(ValueError):
    """The request names no known fault, or wrong parameters; one sentence for people."""


@dataclass(frozen=True)
class SlowReply:
    """The next `count` commands (0: until cleared) wait `delay_ms` before they are run."""

    delay_ms: int
    count: int = 0
    on: str = "both"


@dataclass(frozen=True)
class IoError:
    """The next `count` commands (0: until cleared) fail in a way that a retry may fix."""

    count: int = 0
    on: str = "both"


@dataclass(frozen=True)
class MediaError:
    """Commands that touch the `blocks` from `lba` on fail for good, until cleared."""

    lba: int
    blocks: int = 1


@dataclass(frozen=True)
class PowerCut:
    """Power fails in the middle of the `after_commands`-th command from now; happens once."""

    after_commands: int = 1
    on: str = "both"


@dataclass(frozen=True)
class AuthorityLockedOut:
    """The authority has reached its try limit, as after too many wrong PINs."""

    authority: str


@dataclass(frozen=True)
class BlockSid:
    """The firmware has blocked the SID, as many do before they start an operating system."""


@dataclass(frozen=True)
class RefuseOpal:
    """The drive claims Opal in its discovery and fails every method, until cleared."""


@dataclass(frozen=True)
class ShadowOn:
    """The MBR shadow is enabled and not done: it hides the first blocks of the disk."""


IoFault = SlowReply | IoError | MediaError | PowerCut
Fault = IoFault | AuthorityLockedOut | BlockSid | RefuseOpal | ShadowOn
_TYPES: dict[str, type[Fault]] = {
    "slow-reply": SlowReply,
    "io-error": IoError,
    "media-error": MediaError,
    "power-cut": PowerCut,
    "authority-locked-out": AuthorityLockedOut,
    "block-sid": BlockSid,
    "refuse-opal": RefuseOpal,
    "shadow-on": ShadowOn,
}
_NAMES = {fault_type: name for name, fault_type in _TYPES.items()}
_LEAST = {"delay_ms": 1, "blocks": 1, "after_commands": 1}


def describe(fault: Fault) -> dict[str, Any]:
    """Return the fault in the form that the control socket accepts."""
    return {"name": _NAMES[type(fault)], **asdict(fault)}


def parse(name: object, parameters: Mapping[str, Any]) -> Fault:
    """Build the fault of that name; raises FaultError, which lists the valid names."""
    fault_type = _TYPES.get(name) if isinstance(name, str) else None
    if fault_type is None:
        raise FaultError(f"there is no fault {name!r}; known are: {', '.join(sorted(_TYPES))}")
    parameter_fields = {field.name: field for field in fields(fault_type)}
    needed = {name for name, field in parameter_fields.items() if field.default is MISSING}
    if not needed <= parameters.keys() <= parameter_fields.keys():
        takes = ", ".join(key if key in needed else f"{key} (optional)" for key in parameter_fields)
        raise FaultError(f"the fault {name} takes {takes or 'no parameters'}")
    for key, value in parameters.items():
        _check(fault_type, str(parameter_fields[key].type), key, value)
    return fault_type(**parameters)


def _check(fault_type: type[Fault], type_name: str, key: str, value: object) -> None:
    if key == "on":
        choices = _IO if fault_type is IoError else _ALL
        if not isinstance(value, str) or value not in choices:
            raise FaultError(f"on is one of: {', '.join(choices)}")
    elif type_name == "str":
        if not isinstance(value, str):
            raise FaultError(f"{key} is a name")
    else:
        least = _LEAST.get(key, 0)
        if type(value) is not int or not least <= value < _NUMBER_LIMIT:
            raise FaultError(f"{key} is a whole number from {least} on")


@dataclass(frozen=True)
class Outcome:
    """Effect of the faults on one command: it waits, then power fails, or it fails, or it runs."""

    delay_ms: int = 0
    power_lost: bool = False
    media_error: bool = False
    io_error: bool = False


class Faults:
    """The faults in force; the I/O path checks only `active` when there are none."""

    def __init__(self) -> None:
        self.active = False
        self._counts: dict[IoFault, int] = {}
        self._lock = threading.Lock()

    def add(self, fault: IoFault) -> None:
        """Add a fault, replacing an equal one."""
        with self._lock:
            count = fault.after_commands if isinstance(fault, PowerCut) else 0
            if isinstance(fault, SlowReply | IoError):
                count = fault.count
            self._counts[fault] = count
            self.active = True

    def clear(self) -> None:
        with self._lock:
            self._counts.clear()
            self.active = False

    def describe(self) -> list[dict[str, Any]]:
        """List the faults in force; `left` counts the commands still to meet it (0: all)."""
        with self._lock:
            return [{**describe(fault), "left": count} for fault, count in self._counts.items()]

    def meet(self, kind: Kind, extents: list[tuple[int, int]]) -> Outcome:
        """Return the effect on a command of `kind` on these (first block, blocks), and count it."""
        delay_ms, met = 0, set()
        with self._lock:
            for fault in list(self._counts):
                match fault:
                    case SlowReply() if kind in _ALL[fault.on]:
                        delay_ms += fault.delay_ms
                        self._count(fault)
                    case IoError() if kind in _IO[fault.on]:
                        met.add("io")
                        self._count(fault)
                    case PowerCut() if kind in _ALL[fault.on]:
                        if self._count(fault):
                            met.add("power")
                    case MediaError(lba=lba, blocks=blocks):
                        if any(lba < at + size and at < lba + blocks for at, size in extents):
                            met.add("media")
            self.active = bool(self._counts)
        return Outcome(delay_ms, "power" in met, "media" in met, "io" in met)

    def _count(self, fault: IoFault) -> bool:
        """Count the command; return whether it was the fault's last one."""
        self._counts[fault] -= 1
        if self._counts[fault] == 0:
            del self._counts[fault]
            return True
        self._counts[fault] = max(self._counts[fault], 0)
        return False
