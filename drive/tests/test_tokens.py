from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drive.opal.calls import encode_call, parse_call
from drive.opal.packets import (
    MAX_DEPTH,
    Control,
    Message,
    Named,
    PacketError,
    TokenError,
    decode,
    encode,
    pack,
    parse,
    unpack,
)

_INTEGERS = st.integers(-(2**63), 2**64 - 1)
_ATOMS = _INTEGERS | st.binary(max_size=3000)
_VALUES = st.recursive(
    _ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.builds(Named, st.integers(0, 2**32) | st.binary(max_size=8), inner)
    ),
    max_leaves=12,
).filter(lambda value: _depth(value) <= MAX_DEPTH)


def _depth(value: object) -> int:
    if isinstance(value, Named):
        return 1 + _depth(value.value)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


_STRUCTURE = st.sampled_from([0xF0, 0xF1, 0xF2, 0xF3, 0xF8, 0xF9, 0xFF, 0, 0xA1])


@given(st.binary(max_size=200) | st.lists(_STRUCTURE, max_size=40).map(bytes))
def test_any_bytes_raise_only_token_and_packet_errors(data: bytes) -> None:
    for read in (lambda: parse(decode(data)), lambda: parse_call(decode(data))):
        with contextlib.suppress(TokenError):
            read()
    with contextlib.suppress(PacketError):
        unpack(data)


@given(_VALUES)
def test_encoded_values_are_decoded_unchanged(value: object) -> None:
    assert parse(decode(encode(value))) == [value]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (0, "00"), (63, "3f"), (64, "8140"), (255, "81ff"), (256, "820100"),
        (-1, "7f"), (-32, "60"), (-33, "91df"), (2**64 - 1, "88ffffffffffffffff"),
        (b"", "a0"), (b"\x01" * 15, "af" + "01" * 15), (b"\x01" * 16, "d010" + "01" * 16),
        (bytes(2047), "d7ff" + "00" * 2047), (bytes(2048), "e2000800" + "00" * 2048),
        ([1, [b"a"]], "f001f0a161f1f1"), (Named(3, 1), "f20301f3"), (Control.CALL, "f8"),
    ],
)  # fmt: skip
def test_wire_form_is_the_specification_s(value: object, wire: str) -> None:
    assert encode(value).hex() == wire  # type: ignore[arg-type]
    assert parse(decode(bytes.fromhex(wire))) == [value]


def test_a_long_nesting_is_refused_instead_of_exhausting_the_stack() -> None:
    for opening in (b"\xf0", b"\xf2\x01"):
        with pytest.raises(TokenError, match="deep"):
            parse(decode(opening * 100_000))


def test_a_call_without_its_status_is_not_a_call() -> None:
    good = encode_call(bytes(8), bytes(7) + b"\x16", [1, Named(0, b"pin")])
    assert parse_call(decode(good)).named == {0: b"pin"}
    with pytest.raises(TokenError):
        parse_call(decode(good[:-5]))


@given(st.data())
def test_corrupt_lengths_never_yield_bytes_beyond_the_payload(data: st.DataObject) -> None:
    packet = bytearray(pack(Message(0x1000, 0x41, b"payload")))
    packet[data.draw(st.integers(0, 55))] = data.draw(st.integers(0, 255))
    try:
        payload = unpack(bytes(packet)).payload
    except PacketError:
        return
    assert bytes(packet[56:]).startswith(payload)


def test_padding_after_the_packet_is_ignored() -> None:
    message = Message(0x1000, 0x41, b"\xfa")
    assert unpack(pack(message).ljust(2048, b"\xee")) == message
