"""A build folder of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of what can be made again."""
    monkeypatch.setenv("FDE_BUILD", str(tmp_path / "build"))
    return tmp_path / "build"
