"""The figures that the papers print, as `data/reference` keeps them: one figure a row."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "data" / "reference"
CONDITIONS = (
    "operation",
    "file_type",
    "size_bytes",
    "block_bytes",
    "mode",
    "pattern",
    "device",
    "software",
    "iterations",
    "machine",
)
COLUMNS = (
    *("paper", "entry", "place", "page", "subject"),
    *CONDITIONS,
    *("workload", "phase", "configuration"),
    *("quantity", "value", "half_width_95", "unit", "doubtful", "note"),
)


@dataclass(frozen=True)
class Citation:
    """What the copy at hand says of its paper; empty where it does not say."""

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
class Published:
    """One printed figure under its conditions, in this project's words where it has one.

    `printed` and `printed_half` are `value` and `half_width` (the ± beside it, 95 %) digit by
    digit. Sizes are bytes, the multiples of the papers read as powers of 1024. `note` says why a
    doubtful figure is one; doubtful figures stand as printed.
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
    printed: str
    half_width: float | None
    printed_half: str
    unit: str
    doubtful: bool
    note: str

    @property
    def key(self) -> tuple[object, ...]:
        """What tells this figure from every other of its paper."""
        conditions = tuple(getattr(self, name) for name in CONDITIONS)
        return (
            self.entry,
            self.place,
            self.subject,
            *conditions,
            self.configuration,
            self.quantity,
        )


@dataclass(frozen=True)
class ReferenceConfiguration:
    """What a configuration of these tables is: its kind, and for software its cipher and key."""

    configuration: str
    kind: str
    cipher: str
    key_bits: int | None


@cache
def citations() -> tuple[Citation, ...]:
    """The papers, the one whose testbed this is first."""
    return tuple(Citation(**row) for row in _rows("papers"))


@cache
def configurations() -> dict[str, ReferenceConfiguration]:
    """The configurations of the papers' rows, by name."""
    return {
        row["configuration"]: ReferenceConfiguration(
            row["configuration"], row["kind"], row["cipher"], _whole(row["key_bits"])
        )
        for row in _rows("configurations")
    }


def published(paper: str | None = None) -> list[Published]:
    """The figures of one paper, or of all, in the order of `citations` and of the papers.

    Raises KeyError for a paper that is not among them.
    """
    known = [citation.paper for citation in citations()]
    if paper is not None and paper not in known:
        raise KeyError(f"no paper {paper!r}: there are {', '.join(known)}")
    return [figure for name in known if paper in (None, name) for figure in _figures(name)]


@cache
def _figures(paper: str) -> tuple[Published, ...]:
    return tuple(_figure(row) for row in _rows(paper))


def _figure(row: dict[str, str]) -> Published:
    half = row["half_width_95"]
    return Published(
        paper=row["paper"],
        entry=row["entry"],
        place=row["place"],
        page=row["page"],
        subject=row["subject"],
        operation=row["operation"],
        file_type=row["file_type"],
        size_bytes=_whole(row["size_bytes"]),
        block_bytes=_whole(row["block_bytes"]),
        mode=row["mode"],
        pattern=row["pattern"],
        device=row["device"],
        software=row["software"],
        iterations=_whole(row["iterations"]),
        machine=row["machine"],
        workload=row["workload"],
        phase=row["phase"],
        configuration=row["configuration"],
        quantity=row["quantity"],
        value=float(row["value"]),
        printed=row["value"],
        half_width=float(half) if half else None,
        printed_half=half,
        unit=row["unit"],
        doubtful=row["doubtful"] == "yes",
        note=row["note"],
    )


def _rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _whole(text: str) -> int | None:
    return int(text) if text else None
