"""Run a command of `fde` in this process and capture its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest


class Printed(NamedTuple):
    out: str
    err: str


@dataclass(frozen=True)
class Fde:
    """Runs `fde("verify", folder, status=1).err`: the typed words and the required exit status."""

    written: pytest.CaptureFixture[str]

    def __call__(self, *words: object, status: int = 0) -> Printed:
        from controller.cli.app import main

        self.written.readouterr()
        assert main([str(word) for word in words]) == status
        return Printed(*self.written.readouterr())
