"""Text of the system is bytes, and is read so everywhere."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import names, system_text
from contract.files import json_text

ROOT = Path(__file__).resolve().parents[2]
# What runs on the target or beside an instrument; tests read what they wrote themselves.
PACKAGES = ("agent", "workloads", "instrumentation")


def test_bytes_are_neither_refused_nor_lost(tmp_path: Path) -> None:
    path = tmp_path / "comm"
    path.write_bytes(b"t\xc3\n")
    text = system_text.read(path)
    assert text.encode("utf-8", "surrogateescape") == b"t\xc3\n"
    assert names.sentence(text.strip()) == "t\\xc3"
    assert json.loads(json_text({"comm": text})) == {"comm": "t\\xc3\n"}
    assert json.loads(json_text({"text": "ä\\udcc3"})) == {"text": "ä\\udcc3"}


def _guesses(source: str) -> Iterator[int]:
    """Lines that decode by a guess: no encoding named, or bytes that do not fit it replaced."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        named = {keyword.arg for keyword in node.keywords}
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        text_mode = any(k.arg == "text" and ast.unparse(k.value) == "True" for k in node.keywords)
        if (
            (called == "read_text" and "encoding" not in named)
            or (called == "decode" and not node.args and "errors" in named)
            or (
                called in ("run", "Popen", "check_output") and text_mode and "encoding" not in named
            )
        ):
            yield node.lineno


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_code_decodes_with_a_guessed_encoding(package: str) -> None:
    guesses = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if not {"tests", "simulators"} & set(path.parts)
        for line in _guesses(path.read_text(encoding="utf-8"))
    ]
    assert guesses == []


@pytest.mark.parametrize(
    "source", ["p.read_text()", "d.decode(errors='replace')", "subprocess.run(a, text=True)"]
)
def test_a_guessed_encoding_is_detected(source: str) -> None:
    assert list(_guesses(source)) == [1]
