"""Permanent defects of some real drives: declared by the control socket, off by default.

Unlike faults (`drive.faults`) they last until they are taken back. A host sees a change of Identify
when it connects again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


class ViceError(ValueError):
    """The request names an unknown vice or a wrong value; one sentence for people."""


@dataclass(frozen=True)
class Vices:
    """The drive's vices; 0, an empty text and False mean none.

    `dead_after_revert`: no block can be used after a revert until a power cycle;
    `revert_unanswered`: a revert is done and answered with FAIL; `revert_ms`: how long it takes,
    during which the controller answers nothing; `opal_block_bytes`, `alignment_blocks`,
    `lowest_lba`: Opal's geometry; `no_media_encryption`: discovery denies it; `no_session`:
    NO_SESSIONS_AVAILABLE for every session; `no_range`: no range but the global one can be set up;
    `msid_unreadable`: no host may read the MSID; `lock_ignored`: a locked range reports that it is
    locked and is read all the same; `write_refused`: every write fails; `wrap_blocks`: the medium
    has so many blocks, and those beyond are the first ones again; `discard_refused`,
    `discard_ignored`, `discard_ms` (how long a command takes); `multipath`: the subsystem may have
    several controllers and shares its namespaces; `serial_hex`: the bytes of the serial number.
    """

    dead_after_revert: bool = False
    revert_unanswered: bool = False
    revert_ms: int = 0
    opal_block_bytes: int = 0
    alignment_blocks: int = 0
    lowest_lba: int = 0
    no_media_encryption: bool = False
    no_session: bool = False
    no_range: bool = False
    msid_unreadable: bool = False
    lock_ignored: bool = False
    write_refused: bool = False
    wrap_blocks: int = 0
    discard_refused: bool = False
    discard_ignored: bool = False
    discard_ms: int = 0
    multipath: bool = False
    serial_hex: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the vices in force."""
        return {name: value for name, value in asdict(self).items() if value}


def parse(parameters: Mapping[str, Any]) -> Vices:
    """Build vices from names and values; 0 and 1 mean flags. Raises ViceError."""
    types = {field.name: field.type for field in fields(Vices)}
    values: dict[str, Any] = {}
    for name, value in parameters.items():
        if name not in types:
            raise ViceError(f"there is no vice {name}: choose from {', '.join(types)}")
        if types[name] == "str":
            if not isinstance(value, str) or len(bytes.fromhex(value)) > 20:
                raise ViceError(f"{name} must be at most 20 bytes in hexadecimal")
            values[name] = value
        else:
            most = 1 if types[name] == "bool" else 1 << 31
            if not isinstance(value, int) or not 0 <= value <= most:
                raise ViceError(f"{name} must be a whole number from 0 to {most}")
            values[name] = bool(value) if types[name] == "bool" else value
    return Vices(**values)
