"""Changes to messages, for fuzzing: of bytes, of lengths, of tokens; all from one `Random`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

from drive.opal.packets import Control, Token, TokenError, decode, encode

_INTERESTING = (
    0, 1, 2, 0x3F, 0x40, 0x7F, 0x80, 0xFF, 0x7FF, 0x800, 0xFFFF, 1 << 20, 1 << 24,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1,
)  # fmt: skip
_MAX_BYTES = 16_384


def _flip_bit(data: bytearray, chance: Random, _others: Sequence[bytes]) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _set_byte(data: bytearray, chance: Random, _others: Sequence[bytes]) -> None:
    data[chance.randrange(len(data))] = chance.choice(
        (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
    )


def _set_number(data: bytearray, chance: Random, _others: Sequence[bytes]) -> None:
    """Set a number of 2, 4 or 8 bytes in either order: mostly lengths, ids or LBAs."""
    width = chance.choice((2, 4, 8))
    if len(data) >= width:
        at = chance.randrange(0, len(data) - width + 1)
        value = chance.choice(_INTERESTING) + chance.choice((-1, 0, 0, 1))
        order = chance.choice(("big", "little"))
        data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, order)  # type: ignore[arg-type]


def _truncate(data: bytearray, chance: Random, _others: Sequence[bytes]) -> None:
    del data[chance.randrange(len(data)) :]


def _remove(data: bytearray, chance: Random, _others: Sequence[bytes]) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.randint(1, 16)]


def _repeat(data: bytearray, chance: Random, _others: Sequence[bytes]) -> None:
    at = chance.randrange(len(data))
    part = data[at : at + chance.randint(1, 64)]
    data[at:at] = part * chance.choice((1, 1, 2, 16))


def _insert(data: bytearray, chance: Random, _others: Sequence[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = chance.randbytes(chance.randint(1, 32))


def _splice(data: bytearray, chance: Random, others: Sequence[bytes]) -> None:
    other = chance.choice(others)
    data[chance.randrange(len(data)) :] = other[chance.randrange(len(other)) :] if other else b""


_BYTE_CHANGES: tuple[Callable[[bytearray, Random, Sequence[bytes]], None], ...] = (
    _flip_bit, _flip_bit, _set_byte, _set_byte, _set_number, _set_number,
    _truncate, _remove, _repeat, _insert, _splice,
)  # fmt: skip


def change_bytes(data: bytes, chance: Random, others: Sequence[bytes]) -> bytes:
    """One to four changes anywhere in `data`; parts of `others` may be spliced in."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        if changed:
            chance.choice(_BYTE_CHANGES)(changed, chance, others)
    return bytes(changed[:_MAX_BYTES])


def _token(chance: Random, pool: Sequence[Token]) -> Token:
    match chance.randrange(6):
        case 0:
            return chance.choice(_INTERESTING)
        case 1:
            return -chance.choice(_INTERESTING[:14])
        case 2:
            return chance.randbytes(chance.choice((0, 1, 4, 8, 8, 32, 33, 300)))
        case 3:
            return chance.choice(tuple(Control))
        case _:
            return chance.choice(pool)


def change_tokens(payload: bytes, chance: Random, pool: Sequence[Token]) -> bytes:
    """One to three changes of whole tokens; `pool` has those of real calls."""
    try:
        tokens = decode(payload)
    except TokenError:
        return change_bytes(payload, chance, [payload])
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(tokens) + 1)
        match chance.randrange(8):
            case 0:
                del tokens[at : at + chance.choice((1, 1, 3))]
            case 1:
                tokens[at:at] = tokens[at : at + chance.randint(1, 8)]
            case 2:
                tokens.insert(at, _token(chance, pool))
            case 3 if len(tokens) > 1:
                other = chance.randrange(len(tokens))
                at %= len(tokens)
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 4:
                depth = chance.choice((1, 2, 15, 16, 17, 200))
                tokens[at:at] = [Control.START_LIST] * depth + [Control.END_LIST] * depth
            case _ if tokens:
                tokens[at % len(tokens)] = _token(chance, pool)
    return b"".join(map(encode, tokens))[:_MAX_BYTES]


def change_values(payload: bytes, chance: Random, pool: Sequence[Token]) -> bytes:
    """One or two changes of values that leave a call a call: its frame and nesting stay."""
    try:
        tokens = decode(payload)
    except TokenError:
        return payload
    atoms = [at for at, token in enumerate(tokens) if not isinstance(token, Control)]
    atoms = [at for at in atoms if at < len(tokens) - 4]  # the status list stays
    for _ in range(chance.choice((1, 1, 2))):
        if not atoms:
            break
        at = chance.choice(atoms)
        old, new = tokens[at], _token(chance, pool)
        while isinstance(new, Control):
            new = _token(chance, pool)
        if at in (1, 2):  # object and method: what there is, or one bit of a number beside it
            new = chance.choice([t for t in pool if isinstance(t, bytes) and len(t) == 8])
        elif isinstance(old, bytes) and old and chance.random() < 0.3:
            changed = bytearray(old)
            _flip_bit(changed, chance, ())
            new = bytes(changed)
        elif isinstance(old, int) and chance.random() < 0.5:
            new = min(old + chance.choice((-1, 1, 2, 5)), (1 << 64) - 1)
        tokens[at] = new
    return b"".join(map(encode, tokens))[:_MAX_BYTES]


def change_command(pdu: bytes, chance: Random) -> bytes:
    """Return a command PDU whose framing stays right: changes within the submission queue entry."""
    changed = bytearray(pdu)
    for _ in range(chance.choice((1, 1, 2, 3))):
        kind = chance.randrange(6)
        if kind == 0:
            changed[8] = chance.randrange(256)  # opcode
        elif kind == 1:
            changed[8 + chance.randrange(64)] = chance.randrange(256)
        elif kind == 2:
            changed[8 + chance.randrange(64)] ^= 1 << chance.randrange(8)
        elif kind == 3:
            struct.pack_into("<I", changed, 12, chance.choice((0, 1, 2, 2, 3, 0xFFFFFFFF)))  # NSID
        else:
            at = 8 + 4 * chance.randrange(16)
            struct.pack_into("<I", changed, at, chance.choice(_INTERESTING) & 0xFFFFFFFF)
    if len(changed) > 72 and chance.random() < 0.5:
        data = bytearray(changed[72:])
        chance.choice(_BYTE_CHANGES[:6])(data, chance, ())
        changed[72:] = data
    return bytes(changed)
