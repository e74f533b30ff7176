"""A page as plain data: texts, tables and figures, which the templates turn into HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import quote

from markupsafe import Markup

from analysis.report.texts import Term, say
from contract.command_results import AnswerLine

if TYPE_CHECKING:  # slow to import, and not every use of a page's words draws
    from matplotlib.figure import Figure


Row = TypeVar("Row")
Fields = Mapping[str, Callable[[Row], str]]  # by heading, the text of a row's cell


class Verdict(str):
    """A verdict in words; `kind` (`differs`, `equivalent`, `inconclusive`) gives its colour."""

    kind: str

    def __new__(cls, text: str, kind: str) -> Verdict:
        verdict = super().__new__(cls, text)
        verdict.kind = kind
        return verdict


@dataclass(frozen=True)
class Block:
    """One piece of a page; the macro of its name in templates/blocks.html.j2 shows it."""

    @property
    def macro(self) -> str:
        """The macro's name."""
        return type(self).__name__.lower()


Blocks = tuple[Block, ...]


class Link(NamedTuple):
    """A name with its target, and plain text after it."""

    name: str
    target: str
    after: str = ""


@dataclass(frozen=True)
class Paragraph(Block):
    """A sentence or several; `kind` is empty, `answer`, `facts` or `key` (an explanation)."""

    text: str
    kind: str


@dataclass(frozen=True)
class Answer(Block):
    """A line of the first page: label, verdict in bold, reason, and a command.

    The label is empty if it is that of the line above.
    """

    label: str
    verdict: str
    reason: str
    command: str = ""


@dataclass(frozen=True)
class Facts(Block):
    """The source of the figures in a line, with a `mark` if they are not measured."""

    text: str
    mark: str


class Remark(NamedTuple):
    """A reservation in one sentence, and sentences that a reader can unfold."""

    text: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Remarks(Block):
    """A list of reservations, a line each."""

    remarks: tuple[Remark, ...]


@dataclass(frozen=True)
class Heading(Block):
    """A heading within a section."""

    text: str
    level: int
    anchor: str


@dataclass(frozen=True)
class Bullets(Block):
    """A list of sentences."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Links(Block):
    """A list of links."""

    links: tuple[Link, ...]


@dataclass(frozen=True)
class Note(Block):
    """A warning in a box."""

    title: str
    inside: Blocks


@dataclass(frozen=True)
class Folded(Block):
    """Blocks that a reader can unfold; print shows them open."""

    summary: str
    inside: Blocks
    anchor: str


class Cell(NamedTuple):
    """A cell of a table: its text, its CSS class, and the number of rows that it spans."""

    text: str
    kind: str = ""
    rows: int = 1


@dataclass(frozen=True)
class Table(Block):
    """A table: `words` columns of text, then figures; the first cell heads its row.

    With `group`, consecutive rows with an equal first cell share it.
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    group: bool = False

    @property
    def head(self) -> Iterator[Cell]:
        """The headers."""
        for i, text in enumerate(self.headers):
            yield Cell(text, "figure" if i >= self.words and text != "Verdict" else "")

    @property
    def body(self) -> Iterator[tuple[Cell | None, list[Cell]]]:
        """The head and the other cells of each row; no head where the one above spans it."""
        for _, same in groupby(enumerate(self.rows), lambda n: n[1][0] if self.group else n[0]):
            rows = [row for _, row in same]
            for i, (name, *texts) in enumerate(rows):
                cells = [
                    Cell(text, f"verdict {text.kind}" if isinstance(text, Verdict) else "")
                    for text in texts
                ]
                yield None if i else Cell(name, rows=len(rows)), cells

    @property
    def text(self) -> str:
        """The table for a terminal, without caption: words flush left, figures flush right.

        With `group`, a first cell stands above its rows.
        """
        cut = int(self.group)
        cells = [line[cut:] for line in (self.headers, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        cells.insert(1, ["-" * width for width in widths])
        lines = [
            "  ".join(
                cell.ljust(width) if i < self.words - cut else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in cells
        ]
        if self.group:
            heads = ["", "", *(row[0] for row in self.rows)]
            above = [f"{head}\n" * (head != last) for last, head in pairwise(["", *heads])]
            lines = [f"{head}  {line}" for head, line in zip(above, lines, strict=True)]
        return "\n".join(lines)


class MatrixCell(NamedTuple):
    """A change with the lines below it; `kind` is a verdict, `hint` names it."""

    text: str
    kind: str = ""
    hint: str = ""
    below: tuple[str, ...] = ()


class Group(NamedTuple):
    """A group of a matrix's rows, each with a name and cells; a single group has no name."""

    name: str
    rows: tuple[tuple[str, tuple[MatrixCell, ...]], ...]


@dataclass(frozen=True)
class Matrix(Block):
    """A table of changes, coloured by their verdicts."""

    caption: str
    headers: tuple[str, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Picture(Block):
    """A figure, with its origin in its title."""

    drawn: Figure
    caption: str

    @property
    def alt(self) -> str:
        """What the picture shows, in words."""
        return str(self.drawn.get_label())

    @property
    def source(self) -> Markup:
        """The picture as SVG, as the address of an image."""
        from analysis.report.figures import style

        # Shorter than in base 64: only what ends an attribute, a tag or an address is encoded.
        svg = style.svg(self.drawn)
        quoted = re.sub(r"<[^>]*>", lambda tag: tag[0].replace('"', "'"), svg)
        encoded = re.sub(r'[%#<>&"\s]', lambda c: c[0] if c[0] == " " else quote(c[0]), quoted)
        return Markup(f"data:image/svg+xml,{encoded}")


@dataclass(frozen=True)
class Columns(Block):
    """Two parts, side by side if there is room."""

    first: Blocks
    aside: Blocks


class Section(NamedTuple):
    """A section that a reader opens: heading, anchor and blocks."""

    title: str
    anchor: str
    blocks: Blocks


@dataclass(frozen=True)
class Page:
    """A page: the document's title, the heading with its facts, the first screen, the sections.

    `origin` is the worst one of the page's figures; of `terms` those that occur are explained.
    """

    title: str
    heading: str
    facts: Blocks
    head: Blocks
    sections: tuple[Section, ...]
    origin: str
    terms: tuple[Term, ...] = ()


# The functions below build blocks, and none if there is nothing to show.


def join(parts: Iterable[Blocks]) -> Blocks:
    """Join blocks in their order."""
    return tuple(chain.from_iterable(parts))


def paragraph(text: str, kind: str = "") -> Blocks:
    """Return a paragraph."""
    return (Paragraph(text, kind),)


def key(name: str, **fields: str) -> Blocks:
    """Return an explanation: the catalogue's text of that name and key `.key`, filled in."""
    return paragraph(say(f"{name}.key", **fields), "key")


def answer(line: AnswerLine, label: str = "") -> Blocks:
    """Return a line of the first page."""
    command = str(line.facts.get("command", ""))
    return (Answer(label, line.verdict, line.reason, command),)


def heading(text: str, level: int, anchor: str = "") -> Blocks:
    """Return a heading."""
    return (Heading(text, level, anchor),)


def bullets(texts: Iterable[str]) -> Blocks:
    """Return a list, if there is anything in it."""
    items = tuple(texts)
    return (Bullets(items),) if items else ()


def links(items: Iterable[Link]) -> Blocks:
    """Return a list of links, if there are any."""
    entries = tuple(items)
    return (Links(entries),) if entries else ()


def note(title: str, text: str) -> Blocks:
    """Return a warning in a box."""
    return (Note(title, paragraph(text)),)


def folded(summary: str, inside: Blocks, anchor: str = "") -> Blocks:
    """Return a fold, if there is anything in it."""
    return (Folded(summary, inside, anchor),) if inside else ()


def table(
    caption: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    words: int = 1,
    group: bool = False,
) -> Blocks:
    """Return a table, if it has rows."""
    return (Table(caption, headers, rows, words, group),) if rows else ()


def table_of(
    caption: str, rows: Iterable[Row], columns: Fields[Row], *, words: int = 1, group: bool = False
) -> Blocks:
    """Return a table of `rows`, with a function for the text of each column."""
    cells = [[text(row) for text in columns.values()] for row in rows]
    return table(caption, list(columns), cells, words=words, group=group)


def picture(drawn: Figure | None, caption: str = "") -> Blocks:
    """Return a figure, if one was drawn."""
    return () if drawn is None else (Picture(drawn, caption),)


def columns(first: Blocks, aside: Blocks) -> Blocks:
    """Return two columns, or one if a part is empty."""
    return (Columns(first, aside),) if first and aside else first + aside
