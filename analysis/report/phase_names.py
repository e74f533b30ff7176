"""What the name of a phase says: `aes-128-cbc.encrypt.text.1048576B` (docs/workloads.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"(\d+)(B|i)")
_SIZES = ((2**30, "GB"), (2**20, "MB"), (2**10, "KB"))


@dataclass(frozen=True)
class PhaseName:
    """The fields before the number, what is done there last: `("aes-128-cbc", "encrypt", "text")`.

    `number` is of bytes (`unit` B) or of iterations (i); None where there is none.
    """

    fields: tuple[str, ...]
    number: int | None = None
    unit: str = ""

    @property
    def shown(self) -> str:
        """For people: `aes-128-cbc encrypt text 1 MB`."""
        return " ".join([*self.fields, *([] if self.number is None else [self.size])])

    @property
    def size(self) -> str:
        """The number with its unit; empty where there is none."""
        if self.number is None:
            return ""
        return size(self.number) if self.unit == "B" else f"{grouped(self.number)} iterations"


def parse(phase: str) -> PhaseName:
    """Any name is one: what is not understood stays a field."""
    *fields, last = phase.split(".")
    found = _NUMBER.fullmatch(last)
    if found is None or not fields:
        return PhaseName((*fields, last))
    return PhaseName(tuple(fields), int(found[1]), found[2])


def size(size_bytes: int) -> str:
    """A size as the papers write it, where 1 KB is 1024 bytes: `4 KB`, `20 527 B`."""
    for factor, unit in _SIZES:
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}\u00a0{unit}"
    return f"{grouped(size_bytes)}\u00a0B"


def grouped(number: int) -> str:
    """With a narrow no-break space between thousands."""
    return f"{number:,}".replace(",", "\u202f")
