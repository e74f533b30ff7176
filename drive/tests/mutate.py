"""Changes to messages, for fuzzing: of bytes, of commands, of tokens; and batches of them."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from drive.opal import schema, uids
from drive.opal.packets import COM_ID, Control, Token, TokenError, decode, encode, encode_all
from drive.tests.corpus import Corpus

BATCH = 32
CALLS_A_SESSION = 4
SHARES = {"pdu": 4, "packet": 3, "call": 5, "owner": 2}  # of batches by their kind
MOST_BYTES = 16_384
Batch = tuple[str, str, list[Any]]  # its kind, the queue of PDUs or the SP of calls, the inputs

_INTERESTING = (
    0, 1, 2, 0x3F, 0x40, 0x7F, 0x80, 0xFF, 0x7FF, 0x800, 0xFFFF, 1 << 20, 1 << 24,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1,
)  # fmt: skip
_BYTE = st.integers(0, 255)
_NUMBER = st.sampled_from(_INTERESTING)
_FEW = st.sampled_from((1, 1, 2, 3))
_UIDS = [uid for uid in vars(uids).values() if isinstance(uid, bytes) and len(uid) == 8]
_UIDS += [uid for table in schema.locking_sp_tables(256) for uid in (table.uid, table.descriptor)]
_MANAGER = encode_all([Control.CALL, uids.SESSION_MANAGER])
_STATUS_TOKENS = 4  # of the status list, which ends a call


@st.composite
def changed_bytes(draw: st.DrawFn, messages: list[bytes]) -> bytes:
    """Change a message anywhere: bits, bytes, numbers, cuts, repeats, parts of another one."""
    data = bytearray(draw(st.sampled_from(messages)))
    for _ in range(draw(_FEW)):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.integers(0, 7)):
            case 0:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                data[at] = draw(_BYTE)
            case 2 | 3:  # mostly a length, an id or an LBA
                width = draw(st.sampled_from((2, 4, 8)))
                value = (draw(_NUMBER) + draw(st.integers(-1, 1))) % (1 << 8 * width)
                data[at : at + width] = value.to_bytes(
                    width, "little" if draw(st.booleans()) else "big"
                )
            case 4:
                del data[at : at + draw(st.sampled_from((1, 16, MOST_BYTES)))]
            case 5:
                data[at:at] = data[at : at + 64] * draw(st.sampled_from((1, 2, 16)))
            case 6:
                data[at:at] = draw(st.binary(min_size=1, max_size=32))
            case _:
                data[at:] = draw(st.sampled_from(messages))[at:]
    return bytes(data[:MOST_BYTES]) or b"\0"


@st.composite
def changed_command(draw: st.DrawFn, commands: list[bytes]) -> bytes:
    """Change the submission queue entry of a command, and its data; its framing stays right."""
    data = bytearray(draw(st.sampled_from(commands)))
    for _ in range(draw(_FEW)):
        match draw(st.integers(0, 3)):
            case 0:
                data[8] = draw(_BYTE)  # opcode
            case 1:
                data[draw(st.integers(8, 71))] = draw(_BYTE)
            case 2:
                nsid = draw(st.sampled_from((0, 1, 2, 2, 3, 0xFFFFFFFF)))
                struct.pack_into("<I", data, 12, nsid)
            case _:
                at = 8 + 4 * draw(st.integers(0, 15))
                struct.pack_into("<I", data, at, draw(_NUMBER) & 0xFFFFFFFF)
    if len(data) > 72 and draw(st.booleans()):
        data[draw(st.integers(72, len(data) - 1))] = draw(_BYTE)
    return bytes(data)


@st.composite
def changed_values(draw: st.DrawFn, calls: list[bytes], tokens: list[Token]) -> bytes:
    """Change one or two values of a call that leave it one: its frame and nesting stay."""
    call = decode(draw(st.sampled_from(calls)))
    last = len(call) - _STATUS_TOKENS
    atoms = [at for at in range(last) if not isinstance(call[at], Control)]
    for _ in range(draw(_FEW) if atoms else 0):
        at = draw(st.sampled_from(atoms))
        old = call[at]
        if at in (1, 2):  # object and method
            call[at] = draw(st.sampled_from(_UIDS))
        elif isinstance(old, bytes) and old and draw(st.booleans()):
            bit = draw(st.integers(0, 8 * len(old) - 1))
            call[at] = (int.from_bytes(old, "big") ^ 1 << bit).to_bytes(len(old), "big")
        elif isinstance(old, int) and draw(st.booleans()):
            call[at] = min(old + draw(st.sampled_from((-1, 1, 2, 5))), (1 << 64) - 1)
        else:
            call[at] = draw(_atoms(tokens))
    return b"".join(map(encode, call))[:MOST_BYTES]


@st.composite
def changed_tokens(draw: st.DrawFn, calls: list[bytes], tokens: list[Token]) -> bytes:
    """Change whole tokens of a call, which hardly ever leaves it one."""
    call = decode(draw(st.sampled_from(calls)))
    for _ in range(draw(_FEW)):
        at = draw(st.integers(0, len(call)))
        match draw(st.integers(0, 4)):
            case 0:
                del call[at : at + draw(_FEW)]
            case 1:
                call[at:at] = call[at : at + 8]
            case 2:
                depth = draw(st.sampled_from((1, 2, 15, 16, 17, 200)))
                call[at:at] = [Control.START_LIST] * depth + [Control.END_LIST] * depth
            case 3:
                call[at : at + 1] = [draw(_atoms(tokens))]
            case _:
                call[at:at] = [draw(st.sampled_from(Control))]
    return b"".join(map(encode, call))[:MOST_BYTES]


def _atoms(tokens: list[Token]) -> st.SearchStrategy[Token]:
    negative = st.sampled_from([-number for number in _INTERESTING[:14]])
    octets = st.sampled_from((0, 1, 4, 8, 32, 33, 300)).map(bytes)
    return _NUMBER | negative | octets | st.binary(max_size=9) | st.sampled_from(tokens)


def _decodes(call: bytes) -> bool:
    try:
        return bool(decode(call))
    except TokenError:
        return False


@st.composite
def batches(draw: st.DrawFn, corpus: Corpus, kind: str) -> Batch:
    """Draw `BATCH` inputs; most calls keep their form, or few would reach a method."""
    calls = [call for call in corpus.calls if _decodes(call)]
    tokens = [t for call in calls for t in decode(call) if not isinstance(t, Control)] + _UIDS
    if kind == "pdu":
        on = draw(st.sampled_from(("admin", "io", "io", "new")))
        every = [*corpus.admin, *corpus.io, *corpus.others]
        if on == "new":
            requests = changed_bytes(corpus.others[:1])
            return kind, on, [draw(requests) for _ in range(BATCH)]
        commands = changed_command(corpus.io if on == "io" else corpus.admin)
        return kind, on, [*(draw(commands) for _ in range(BATCH - 1)), draw(changed_bytes(every))]
    if kind == "packet":
        heads = [(protocol, com_id) for protocol, com_id, _ in corpus.packets]
        heads += [(p, c) for p in (0, 6, 0xEF) for c in (0, 1, COM_ID)]
        data = changed_bytes([data for *_, data in corpus.packets])
        return kind, "", [(*draw(st.sampled_from(heads)), draw(data)) for _ in range(BATCH)]
    if kind == "owner":  # whose calls change the state as they are; the end of a session does not
        calls = [call for call in calls if not call.startswith((b"\xfa", _MANAGER))]
    plain, values = st.sampled_from(calls), changed_values(calls, tokens)
    tenths_plain = 7 if kind == "owner" else 1
    on, inputs = draw(st.sampled_from(("admin", "locking", "locking"))), []
    for number in range(BATCH):
        if number % CALLS_A_SESSION == CALLS_A_SESSION - 1:
            inputs.append(draw(changed_tokens(calls, tokens)))
        else:
            inputs.append(draw(plain if draw(st.integers(0, 9)) < tenths_plain else values))
    return kind, on, inputs
