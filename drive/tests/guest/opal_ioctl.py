"""Runs the kernel's Opal calls one after the other, on the machine that has the disk.

Standard input: {"device": path, "steps": [[name without IOC_OPAL_, {field: value}], …]}. Fields are
those of linux/sed-opal.h (6.12); a key is given as its text, what a pointer leads to as hexadecimal
digits. Standard output: for each step {"code": value of ioctl(2)} with the fields that came back,
or {"errno": number}. Standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import sys
from ctypes import c_uint8 as u8
from ctypes import c_uint32 as u32
from ctypes import c_uint64 as u64
from typing import Any

_WRITE, _READ = 1, 2


def _struct(name: str, **fields: Any) -> type[ctypes.Structure]:
    class Struct(ctypes.Structure):
        _fields_ = list(fields.items())

    Struct.__name__ = name
    return Struct


Key = _struct("opal_key", lr=u8, key_len=u8, key_type=u8, _=u8 * 5, key=u8 * 256)
Session = _struct("opal_session_info", sum=u32, who=u32, opal_key=Key)
LrAct = _struct("opal_lr_act", key=Key, sum=u32, num_lrs=u8, lr=u8 * 9, _=u8 * 2)
LrSetup = _struct(
    "opal_user_lr_setup", range_start=u64, range_length=u64, RLE=u32, WLE=u32, session=Session
)
LrStatus = _struct(
    "opal_lr_status",
    session=Session, range_start=u64, range_length=u64, RLE=u32, WLE=u32, l_state=u32, _=u8 * 4,
)  # fmt: skip
LockUnlock = _struct("opal_lock_unlock", session=Session, l_state=u32, _=u8 * 4)
NewPw = _struct("opal_new_pw", session=Session, new_user_pw=Session)
MbrData = _struct("opal_mbr_data", key=Key, enable_disable=u8, _=u8 * 7)
MbrDone = _struct("opal_mbr_done", key=Key, done_flag=u8, _=u8 * 7)
ShadowMbr = _struct("opal_shadow_mbr", key=Key, data=u64, offset=u64, size=u64)
Table = _struct(
    "opal_read_write_table",
    key=Key, data=u64, table_uid=u8 * 8, offset=u64, size=u64, flags=u64, priv=u64,
)  # fmt: skip
Status = _struct("opal_status", flags=u32, reserved=u32)
Geometry = _struct(
    "opal_geometry",
    align=u8, logical_block_size=u32, alignment_granularity=u64, lowest_aligned_lba=u64, _=u8 * 3,
)  # fmt: skip
Discovery = _struct("opal_discovery", data=u64, size=u64)
RevertLsp = _struct("opal_revert_lsp", key=Key, options=u32, _=u32)

CALLS: dict[str, tuple[int, int, type[ctypes.Structure]]] = {
    "SAVE": (_WRITE, 220, LockUnlock),
    "LOCK_UNLOCK": (_WRITE, 221, LockUnlock),
    "TAKE_OWNERSHIP": (_WRITE, 222, Key),
    "ACTIVATE_LSP": (_WRITE, 223, LrAct),
    "SET_PW": (_WRITE, 224, NewPw),
    "ACTIVATE_USR": (_WRITE, 225, Session),
    "REVERT_TPR": (_WRITE, 226, Key),
    "LR_SETUP": (_WRITE, 227, LrSetup),
    "ADD_USR_TO_LR": (_WRITE, 228, LockUnlock),
    "ENABLE_DISABLE_MBR": (_WRITE, 229, MbrData),
    "ERASE_LR": (_WRITE, 230, Session),
    "SECURE_ERASE_LR": (_WRITE, 231, Session),
    "PSID_REVERT_TPR": (_WRITE, 232, Key),
    "MBR_DONE": (_WRITE, 233, MbrDone),
    "WRITE_SHADOW_MBR": (_WRITE, 234, ShadowMbr),
    "GENERIC_TABLE_RW": (_WRITE, 235, Table),
    "GET_STATUS": (_READ, 236, Status),
    "GET_LR_STATUS": (_WRITE, 237, LrStatus),
    "GET_GEOMETRY": (_READ, 238, Geometry),
    "DISCOVERY": (_WRITE, 239, Discovery),
    "REVERT_LSP": (_WRITE, 240, RevertLsp),
}


def _fill(into: ctypes.Structure, values: dict[str, Any], buffers: list[Any]) -> None:
    """Set fields; a buffer that a field points to is added to `buffers` to keep it alive."""
    for name, value in values.items():
        field = getattr(into, name)
        if isinstance(field, ctypes.Structure):
            _fill(field, value, buffers)
        elif name == "data":
            contents = bytes.fromhex(value)
            buffers.append(ctypes.create_string_buffer(contents, len(contents)))
            into.data, into.size = ctypes.addressof(buffers[-1]), len(contents)
        elif isinstance(value, str):
            octets = bytes.fromhex(value) if name == "table_uid" else value.encode()
            field[: len(octets)] = octets
            if name == "key":
                into.key_len = len(octets)
        else:
            setattr(into, name, value)


def _numbers(structure: ctypes.Structure) -> dict[str, int]:
    fields = {name: getattr(structure, name) for name, *_ in structure._fields_}
    return {name: value for name, value in fields.items() if isinstance(value, int)}


def _step(fd: int, name: str, values: dict[str, Any]) -> dict[str, Any]:
    direction, number, kind = CALLS[name]
    request = direction << 30 | ctypes.sizeof(kind) << 16 | ord("p") << 8 | number
    argument = kind()
    buffers: list[Any] = []
    _fill(argument, values, buffers)
    try:
        code = fcntl.ioctl(fd, request, argument, True)
    except OSError as error:
        return {"errno": error.errno}
    contents = {"data": buffers[0].raw.hex()} if buffers else {}
    return {"code": code} | _numbers(argument) | contents


def main() -> None:
    """Exit status 0 whatever the calls answered."""
    request = json.load(sys.stdin)
    fd = os.open(request["device"], os.O_RDONLY | os.O_CLOEXEC)
    json.dump([_step(fd, name, values) for name, values in request["steps"]], sys.stdout)


if __name__ == "__main__":
    main()
