"""Characters that a terminal would obey, or that change directions, are escaped."""

from __future__ import annotations

import json

import pytest

from contract import names

OBEYED = [
    *("\x1b[2J", "\x07", "\x9b", "\r", "\x00"),
    *("\u202e", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c"),  # bidirectional
    *("\u200b", "\ufeff", "\u2028", "\ud800", "\U000e0041"),  # invisible, or half a letter
]


@pytest.mark.parametrize("text", OBEYED)
def test_control_characters_are_escaped_in_text_and_json(text: str) -> None:
    name = f"a{text}b"
    assert names.printable(name).isprintable() and names.printable(name) != name
    document = names.printable_json(json.dumps({name: [name]}, ensure_ascii=False))
    assert "".join(document.splitlines()).isprintable()
    assert json.loads(document) == {name: [name]}


def test_letters_of_every_script_are_unchanged() -> None:
    text = "Zürich, Łódź, 東京, תל אביב, 3 ± 1 µJ\tnext\nline \u00a0\u202f😀"
    assert names.printable(text) == text
