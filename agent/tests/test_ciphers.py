"""Whether a kernel has a cipher, by its answer to a program that asks for it."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from agent.storage import ciphers
from agent.tests.suite_lab import blocks_document
from contract.plan import Configuration, freeze, parse
from workloads.children import kernel_ciphers


class Asked:
    """The kernel's interface, answering as this machine's cannot be made to."""

    answer = 0

    def __init__(self, *_kind: int) -> None:
        pass

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def bind(self, _address: object) -> None:
        if self.answer:
            raise OSError(self.answer, os.strerror(self.answer))


@pytest.fixture
def configuration(monkeypatch: pytest.MonkeyPatch) -> Configuration:
    monkeypatch.setattr(socket, "socket", Asked)
    return parse(freeze(blocks_document())).storage.configurations["plain"]


@pytest.fixture
def restriction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "af_alg_restrict"
    monkeypatch.setattr(kernel_ciphers, "RESTRICTION", path)
    return path


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
def test_a_cipher_is_missing_only_where_the_kernel_would_give_it(
    answer: int,
    level: str,
    missing: bool,
    configuration: Configuration,
    restriction: Path,
) -> None:
    if level:
        restriction.write_text(f"{level}\n")
    Asked.answer = answer
    reason = ciphers.missing("serpent-xts-plain64", configuration)
    assert (reason is not None) == missing
    assert reason is None or "This kernel has no xts(serpent)" in reason
