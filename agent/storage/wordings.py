"""Sentences and remedies of the storage's problems, by class and code (wordings.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from contract.problem import Wording

FILE = Path(__file__).with_name("wordings.toml")


@cache
def _tables() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def codes() -> frozenset[str]:
    """Return the codes of all classes of problems."""
    return frozenset(code for table in _tables().values() for code in table)


def texts_of(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return the texts of a class of problems, by code."""
    return _tables()[name]


def wordings(name: str) -> Mapping[str, Wording]:
    """Return the wordings of a class of problems, by code."""
    return {code: Wording(**texts) for code, texts in texts_of(name).items()}
