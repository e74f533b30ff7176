"""What the papers used and nobody should today: marked wherever it is named."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from analysis.published.reference import FOLDER

MARK = "†"


@dataclass(frozen=True)
class Unsafe:
    """A cipher, mode or format that is unsafe today, why, and who says so."""

    name: str
    words: tuple[str, ...]
    why: str
    source: str

    def named_in(self, text: str) -> bool:
        """Whether it is named as a word of its own: `3DES` is not `DES`."""
        each = "|".join(re.escape(word) for word in self.words)
        return bool(re.search(rf"(?<![a-z0-9])(?:{each})(?![a-z0-9])", text.lower()))


@cache
def known() -> tuple[Unsafe, ...]:
    """All that data/reference/unsafe.csv names."""
    with (FOLDER / "unsafe.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Unsafe(row["name"], tuple(row["words"].split()), row["why"], row["source"])
            for row in csv.DictReader(file)
        )


@cache
def marked(text: str) -> str:
    """The text with a mark where it names something unsafe."""
    return f"{text}{MARK}" if any(one.named_in(text) for one in known()) else text


def reasons(texts: Iterable[str]) -> list[str]:
    """A sentence each on what is unsafe in any of these texts."""
    all_of_them = list(texts)
    return [
        f"{MARK} {one.name} is unsafe today: {one.why} ({one.source})."
        for one in known()
        if any(one.named_in(text) for text in all_of_them)
    ]
