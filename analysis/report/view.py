"""A page as plain data: texts, tables and figures, which the templates turn into HTML."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from analysis.report.texts import Term, say
from contract.command_results import AnswerLine

if TYPE_CHECKING:  # slow to import, and not every use of a page's words draws
    from matplotlib.figure import Figure


Row = TypeVar("Row")
Piece = TypeVar("Piece")
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
    """A line of the first page: label, verdict in bold, reason, and a command or a link.

    The label is empty if it is that of the line above.
    """

    label: str
    verdict: str
    reason: str
    command: str = ""
    link: Link | None = None


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
    """A list of links; with a `label` it is an index of the page."""

    links: tuple[Link, ...]
    label: str


@dataclass(frozen=True)
class Note(Block):
    """A box; `kind` is `modelled`, `synthetic`, `warning` or `plain`."""

    title: str
    inside: Blocks
    kind: str


@dataclass(frozen=True)
class Folded(Block):
    """Blocks that a reader can unfold; with `screen_only` they are not printed."""

    summary: str
    inside: Blocks
    screen_only: bool


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
    origin: str = ""
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
                    Cell(text, f"verdict {text.kind}")
                    if isinstance(text, Verdict)
                    else Cell(text, "figure" if place >= self.words else "")
                    for place, text in enumerate(texts, start=1)
                ]
                yield None if i else Cell(name, rows=len(rows)), cells

    @property
    def text(self) -> str:
        """The table for a terminal, without caption: words flush left, figures flush right."""
        lines: list[Sequence[str]] = [self.headers, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i < self.words else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )


class MatrixCell(NamedTuple):
    """A change with the text below it; `kind` is a verdict, `hint` has the interval."""

    text: str
    kind: str = ""
    hint: str = ""
    below: str = ""


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
    origin: str


@dataclass(frozen=True)
class Picture(Block):
    """A figure; its caption is also the text for those who cannot see it.

    A browser with scripts can zoom `curves`, a JSON object of power over time: names, [seconds,
    watts] by name, phases as [name, start, end] in s.
    """

    drawn: Figure
    caption: str
    origin: str
    wide: bool
    curves: str = ""

    @cached_property
    def svg(self) -> str:
        """The picture as SVG; `draw` renders many at once."""
        from analysis.report.figures import style

        return style.svg(self.drawn)

    @property
    def source(self) -> str:
        """The SVG as the address of an image."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode()}"


@dataclass(frozen=True)
class Terms(Block):
    """The explained terms; their first occurrences on the page lead to it."""

    terms: tuple[Term, ...]
    close: str


@dataclass(frozen=True)
class Columns(Block):
    """Three parts, with `aside` right of the others if there is room, else between them."""

    first: Blocks
    aside: Blocks
    below: Blocks


class Section(NamedTuple):
    """A section: heading, anchor, blocks, and its name in the page's index if that differs."""

    title: str
    anchor: str
    blocks: Blocks
    short: str = ""


@dataclass(frozen=True)
class Page:
    """A page: the document's title, the first heading, the blocks below it, the sections."""

    title: str
    heading: str
    head: Blocks
    sections: tuple[Section, ...]


def find_blocks(kind: type[Piece], shown: object) -> Iterator[Piece]:
    """Yield all blocks of a kind, at any depth."""
    if isinstance(shown, kind):
        yield shown
    elif is_dataclass(shown) and not isinstance(shown, Table):
        yield from find_blocks(kind, tuple(getattr(shown, field.name) for field in fields(shown)))
    elif isinstance(shown, tuple):
        for block in shown:
            yield from find_blocks(kind, block)


def draw(page: Page) -> None:
    """Draw all pictures of a page."""
    if pictures := list(find_blocks(Picture, page)):
        from analysis.report.figures import style

        drawn = style.svgs([picture.drawn for picture in pictures])
        for picture, svg in zip(pictures, drawn, strict=True):
            vars(picture)["svg"] = svg


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


def answer(line: AnswerLine, label: str = "", link: Link | None = None) -> Blocks:
    """Return a line of the first page."""
    command = str(line.facts.get("command", ""))
    return (Answer(label, line.verdict, line.reason, command, link),)


def heading(text: str, level: int, anchor: str = "") -> Blocks:
    """Return a heading."""
    return (Heading(text, level, anchor),)


def bullets(texts: Iterable[str]) -> Blocks:
    """Return a list, if there is anything in it."""
    items = tuple(texts)
    return (Bullets(items),) if items else ()


def links(items: Iterable[Link], label: str = "") -> Blocks:
    """Return a list of links, if there are any."""
    entries = tuple(items)
    return (Links(entries, label),) if entries else ()


def note(title: str, inside: Blocks, kind: str) -> Blocks:
    """Return a box."""
    return (Note(title, inside, kind),)


def folded(summary: str, inside: Blocks, screen_only: bool = False) -> Blocks:
    """Return a fold, if there is anything in it."""
    return (Folded(summary, inside, screen_only),) if inside else ()


def table(
    caption: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    words: int = 1,
    origin: str = "",
    group: bool = False,
) -> Blocks:
    """Return a table, if it has rows."""
    return (Table(caption, headers, rows, words, origin, group),) if rows else ()


def table_of(
    caption: str,
    rows: Iterable[Row],
    columns: Fields[Row],
    *,
    words: int = 1,
    origin: str = "",
    group: bool = False,
) -> Blocks:
    """Return a table of `rows`, with a function for the text of each column."""
    cells = [[text(row) for text in columns.values()] for row in rows]
    return table(caption, list(columns), cells, words=words, origin=origin, group=group)


def picture(
    drawn: Figure | None, caption: str, origin: str, wide: bool = False, curves: str = ""
) -> Blocks:
    """Return a figure, if one was drawn."""
    return () if drawn is None else (Picture(drawn, caption, origin, wide, curves),)


def columns(first: Blocks, aside: Blocks, below: Blocks) -> Blocks:
    """Return columns, if there are blocks for the second."""
    return (Columns(first, aside, below),) if aside else first + below


def index(sections: Iterable[Section]) -> Blocks:
    """Return links to the sections."""
    return links((Link(s.short or s.title, f"#{s.anchor}") for s in sections), say("page.contents"))
