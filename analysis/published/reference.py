"""The figures that the papers print (`data/reference`), and algorithms that are unsafe today."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from contract import schema
from contract.places import SHARE

FOLDER = SHARE / "data" / "reference"


@dataclass(frozen=True)
class Citation:
    """A paper as its copy at hand names it; a field that the copy lacks is empty."""

    paper: str
    copy: str
    short: str
    authors: str
    title: str
    venue: str
    year: str
    note: str

    @property
    def text(self) -> str:
        """Authors, title, venue and year, as far as they are known."""
        head = f"{self.authors}: " if self.authors else ""
        tail = "".join(f", {part}" for part in (self.venue, self.year) if part)
        return f"{head}{self.title}{tail}"


@dataclass(frozen=True)
class Rule(schema.Closed):
    """One counterpart of a figure: `workload=…; phases=…` in the column `counterparts`."""

    workload: str
    phases: str
    work: str = ""
    sizes: str = ""
    on: str = ""
    against: str = ""
    against_phases: str = ""
    says: Literal["", "loss", "gain", "times", "apart"] = ""
    take: Literal["", "average", "mean", "geometric", "min", "max", "rank"] = ""
    media: str = ""
    member: str = ""
    note: str = ""


@dataclass(frozen=True)
class Published:
    """One printed figure under its conditions, in this project's words if it has one.

    `printed` and `printed_half` are `value` and `half_width` (its ±, 95 %) digit by digit. Sizes
    are bytes, with the papers' multiples read as powers of 1024. `note` has the reason of a doubt;
    doubtful figures are as printed. `fitting` is the only reading of a figure with a lost decimal
    point that fits its neighbours (data/reference/README.md).
    """

    paper: str
    entry: str
    place: str
    page: str
    subject: str
    operation: str
    file_type: str
    size_bytes: int | None
    block_bytes: int | None
    mode: str
    pattern: str
    device: str
    software: str
    iterations: int | None
    machine: str
    workload: str
    phase: str
    configuration: str
    quantity: str
    value: float
    fitting: float | None
    printed: str
    half_width: float | None
    printed_half: str
    unit: str
    doubtful: bool
    note: str
    counterparts: tuple[Rule, ...] = ()

    @property
    def usable(self) -> float:
        """The value to compute with: the fitting reading, else the value as printed."""
        return self.value if self.fitting is None else self.fitting


@dataclass(frozen=True)
class ReferenceConfiguration:
    """A configuration of these tables: kind, cipher and key of software, and a name for people."""

    configuration: str
    kind: str
    cipher: str
    key_bits: int | None
    label: str

    @property
    def product(self) -> str:
        """The program of a configuration of kind `external`, the first part of its name."""
        return self.configuration.split("-", maxsplit=1)[0]


@cache
def citations() -> tuple[Citation, ...]:
    """Return the papers, first the one that this testbed reproduces."""
    return tuple(Citation(**row) for row in rows("papers"))


@cache
def configurations() -> dict[str, ReferenceConfiguration]:
    """Return the configurations of the papers' rows, by name."""
    table = (row | {"key_bits": _integer(row["key_bits"])} for row in rows("configurations"))
    entries = schema.read(tuple[ReferenceConfiguration, ...], list(table))
    return {entry.configuration: entry for entry in entries}


def published(paper: str | None = None) -> list[Published]:
    """Return the figures of one paper, or of all, in the order of `citations` and of the papers.

    Raises KeyError for an unknown paper.
    """
    papers = [citation.paper for citation in citations()]
    if paper is not None and paper not in papers:
        raise KeyError(f"no paper {paper!r}: there are {', '.join(papers)}")
    selected = [name for name in papers if paper in (None, name)]
    return [_figure(row) for name in selected for row in rows(name)]


def _figure(row: dict[str, str]) -> Published:
    half, rules = row.pop("half_width_95"), filter(None, row.pop("counterparts").split(" | "))
    counts = ("size_bytes", "block_bytes", "iterations")
    figures = {"value": row["value"], "fitting": row["fitting"], "half_width": half}
    document = {
        **row,
        **{name: _integer(row[name]) for name in counts},
        **{name: float(text) if text else None for name, text in figures.items()},
        "printed": row["value"],
        "printed_half": half,
        "doubtful": row["doubtful"] == "yes",
    }
    fields = (dict(field.split("=", 1) for field in rule.split("; ")) for rule in rules)
    read = tuple(schema.read(Rule, stated) for stated in fields)
    return replace(schema.read(Published, document), counterparts=read)


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of data/reference, all of them texts."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _integer(text: str) -> int | None:
    return int(text) if text else None


MARK = "†"


@dataclass(frozen=True)
class Unsafe:
    """A cipher, mode or format that is unsafe today, why, and the source."""

    name: str
    words: tuple[str, ...]
    why: str
    source: str

    def named_in(self, text: str) -> bool:
        """Return whether a text has it as a separate word: `3DES` is not `DES`."""
        words = "|".join(re.escape(word) for word in self.words)
        return bool(re.search(rf"(?<![a-z0-9])(?:{words})(?![a-z0-9])", text.lower()))


@cache
def unsafe_algorithms() -> tuple[Unsafe, ...]:
    """Return all rows of data/reference/unsafe.csv."""
    table = [row | {"words": row["words"].split()} for row in rows("unsafe")]
    return schema.read(tuple[Unsafe, ...], table)


@cache
def mark_unsafe(text: str) -> str:
    """Return the text, marked if it names something unsafe."""
    is_unsafe = any(unsafe.named_in(text) for unsafe in unsafe_algorithms())
    return f"{text}{MARK}" if is_unsafe else text


def reasons(texts: Sequence[str]) -> list[str]:
    """Return a sentence for each unsafe algorithm that any of the texts names."""
    return [
        f"{MARK} {unsafe.name} is unsafe today: {unsafe.why} ({unsafe.source})."
        for unsafe in unsafe_algorithms()
        if any(unsafe.named_in(text) for text in texts)
    ]
