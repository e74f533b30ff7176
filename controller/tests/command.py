"""A command of `fde` in this process, and what it wrote."""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Fde:
    """`fde("verify", folder, status=1).err`: words as they are typed, and how it must end."""

    written: pytest.CaptureFixture[str]

    def __call__(self, *words: object, status: int = 0) -> pytest.CaptureResult[str]:
        from controller.cli.app import main

        self.written.readouterr()
        assert main([str(word) for word in words]) == status
        return self.written.readouterr()
