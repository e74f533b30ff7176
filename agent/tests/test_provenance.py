"""The record of the programs that take part."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import provenance
from contract.tests.programs import program


def test_the_record_distinguishes_gnu_from_uutils(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "dd", "echo 'dd (uutils coreutils) 0.12.0'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert provenance.versions()["dd"] == "dd (uutils coreutils) 0.12.0"
