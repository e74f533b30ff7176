"""Whether a kernel has a cipher, by its answer to a program that asks for it."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from agent.storage import ciphers
from contract.plan import Configuration


@pytest.mark.parametrize(
    ("answer", "level", "missing"),
    [
        (0, "", False),
        (errno.ENOENT, "", True),
        (errno.ENOENT, "0", True),
        # The kernel may well have it: only programs are not given it.
        (errno.ENOENT, "1", False),
        (errno.EAFNOSUPPORT, "", False),
    ],
)
def test_a_cipher_is_missing_only_if_the_kernel_says_so(
    answer: int, level: str, missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's interface answers as this machine's cannot be made to."""
    asked = MagicMock()
    error = OSError(answer, os.strerror(answer)) if answer else None
    asked.return_value.__enter__.return_value.bind.side_effect = error
    monkeypatch.setattr(socket, "socket", asked)
    monkeypatch.setattr(ciphers, "RESTRICTION", tmp_path / "af_alg_restrict")
    if level:
        ciphers.RESTRICTION.write_text(f"{level}\n")
    configuration = Configuration("c", "dmcrypt", "plain")
    reason = ciphers.missing("serpent-xts-plain64", configuration)
    assert (reason is not None) == missing
    assert reason is None or "This kernel has no xts(serpent)" in reason
