"""What a page shows, as plain data: texts, tables and figures; the templates make HTML of it."""

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
Fields = Mapping[str, Callable[[Row], str]]  # by heading, what stands in a row's cell


class Verdict(str):
    """A verdict in words; `kind` (`differs`, `equivalent`, `inconclusive`) gives its colour."""

    kind: str

    def __new__(cls, text: str, kind: str) -> Verdict:
        made = super().__new__(cls, text)
        made.kind = kind
        return made


@dataclass(frozen=True)
class Block:
    """One piece of a page; a macro of templates/blocks.html.j2 that is named like it shows it."""

    @property
    def macro(self) -> str:
        """The macro's name."""
        return type(self).__name__.lower()


Blocks = tuple[Block, ...]


class Link(NamedTuple):
    """A name that leads somewhere, and plain text behind it."""

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
    """A line of the first page: subject, verdict in bold, reason, and a command or a link.

    The subject is empty where it is that of the line above.
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
    """Something that only opens when asked for; with `screen_only` it is not printed."""

    summary: str
    inside: Blocks
    screen_only: bool


class Cell(NamedTuple):
    """A cell of a table's body: its text, its CSS class, and how many rows a row's head spans."""

    text: str
    kind: str = ""
    rows: int = 1


@dataclass(frozen=True)
class Table(Block):
    """`words` columns of text, then figures; the first cell heads its row.

    With `group` rows of one first cell stand together, under that cell once.
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
        """Row by row its head, None where the one above reaches down, and its other cells."""
        for _, same in groupby(enumerate(self.rows), lambda n: n[1][0] if self.group else n[0]):
            rows = [row for _, row in same]
            for i, (name, *rest) in enumerate(rows):
                cells = [
                    Cell(text, f"verdict {text.kind}")
                    if isinstance(text, Verdict)
                    else Cell(text, "figure" if place >= self.words else "")
                    for place, text in enumerate(rest, start=1)
                ]
                yield None if i else Cell(name, rows=len(rows)), cells

    @property
    def text(self) -> str:
        """For a terminal, without the caption: words flush left and figures flush right."""
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
    """Rows of a matrix under a name, each with its own name and cells; no name in the only one."""

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
    """A figure; the caption is its text for those who cannot see it.

    A browser with scripts can zoom `curves`, a JSON object of power over time: names, [seconds,
    watts] of each, phases as [name, start, end] in s.
    """

    drawn: Figure
    caption: str
    origin: str
    wide: bool
    curves: str = ""

    @cached_property
    def svg(self) -> str:
        """The picture drawn; `draw` does many at once."""
        from analysis.report.figures import style

        return style.svg(self.drawn)

    @property
    def source(self) -> str:
        """The SVG as the address of an image."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode()}"


@dataclass(frozen=True)
class Terms(Block):
    """The terms explained; where they first appear on the page they lead here."""

    terms: tuple[Term, ...]
    close: str


@dataclass(frozen=True)
class Columns(Block):
    """`aside` stands right of both others where there is room, else between them."""

    first: Blocks
    aside: Blocks
    below: Blocks


class Section(NamedTuple):
    """A heading with its anchor, what stands below, and its name in the page's index if another."""

    title: str
    anchor: str
    blocks: Blocks
    short: str = ""


@dataclass(frozen=True)
class Page:
    """A whole page: the document's title, the first heading, what follows it, the sections."""

    title: str
    heading: str
    head: Blocks
    sections: tuple[Section, ...]


def every(kind: type[Piece], shown: object) -> Iterator[Piece]:
    """All blocks of a kind, in whatever they stand."""
    if isinstance(shown, kind):
        yield shown
    elif is_dataclass(shown) and not isinstance(shown, Table):
        yield from every(kind, tuple(getattr(shown, field.name) for field in fields(shown)))
    elif isinstance(shown, tuple):
        for block in shown:
            yield from every(kind, block)


def draw(page: Page) -> None:
    """Have all its pictures drawn."""
    if pictures := list(every(Picture, page)):
        from analysis.report.figures import style

        drawn = style.svgs([picture.drawn for picture in pictures])
        for picture, svg in zip(pictures, drawn, strict=True):
            vars(picture)["svg"] = svg


# What follows makes blocks, and none where there is nothing to show.


def join(parts: Iterable[Blocks]) -> Blocks:
    """One after the other."""
    return tuple(chain.from_iterable(parts))


def paragraph(text: str, kind: str = "") -> Blocks:
    """One paragraph."""
    return (Paragraph(text, kind),)


def key(name: str, **fields: str) -> Blocks:
    """Return an explanation: the catalogue's text of that name and key `.key`, filled in."""
    return paragraph(say(f"{name}.key", **fields), "key")


def answer(line: AnswerLine, label: str = "", link: Link | None = None) -> Blocks:
    """Return a line of the first page."""
    command = str(line.facts.get("command", ""))
    return (Answer(label, line.verdict, line.reason, command, link),)


def heading(text: str, level: int, anchor: str = "") -> Blocks:
    """One heading."""
    return (Heading(text, level, anchor),)


def bullets(texts: Iterable[str]) -> Blocks:
    """Return a list, if there is anything in it."""
    items = tuple(texts)
    return (Bullets(items),) if items else ()


def links(items: Iterable[Link], label: str = "") -> Blocks:
    """Links, if there are any."""
    entries = tuple(items)
    return (Links(entries, label),) if entries else ()


def note(title: str, inside: Blocks, kind: str) -> Blocks:
    """One box."""
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
    """Return a table with a row for each of `rows`: under each heading its column's text."""
    cells = [[text(row) for text in columns.values()] for row in rows]
    return table(caption, list(columns), cells, words=words, origin=origin, group=group)


def picture(
    drawn: Figure | None, caption: str, origin: str, wide: bool = False, curves: str = ""
) -> Blocks:
    """Return a figure, if one was drawn."""
    return () if drawn is None else (Picture(drawn, caption, origin, wide, curves),)


def columns(first: Blocks, aside: Blocks, below: Blocks) -> Blocks:
    """Columns, if there is something for the second."""
    return (Columns(first, aside, below),) if aside else first + below


def index(sections: Iterable[Section]) -> Blocks:
    """Links to the sections."""
    return links((Link(s.short or s.title, f"#{s.anchor}") for s in sections), say("page.contents"))
