"""A page as one HTML file that needs no network, and blocks as text for a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.report.view import Blocks, Bullets, Heading, Note, Page, Paragraph, Table

WIDTH = 100  # of sentences on a terminal; a table is wider where it must be
UNIT = re.compile(r" (?=%)|(?<=\d) (?=(?:J|W|s|h|kJ|kWh)(?![A-Za-z]))")


def html(page: Page) -> str:
    """The page in the report's style; whatever stands in its texts is shown as text."""
    return environment().get_template("page.html.j2").render(page=page)


def environment() -> Environment:
    """The templates, which escape whatever is put into them."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["shown"] = shown
    return made


def shown(text: str) -> str:
    """A figure stays on one line with its unit and its interval."""
    return UNIT.sub("\u00a0", text).replace(" ± ", "\u00a0±\u00a0")


def text(blocks: Blocks) -> str:
    """For a terminal: sentences, boxes and tables; whatever else is in them is for the page."""
    return "\n".join(_lines(blocks))


def _lines(blocks: Blocks) -> Iterator[str]:
    for block in blocks:
        match block:
            case Paragraph(said, _):
                yield textwrap.fill(said, WIDTH)
            case Bullets(items):
                yield from items
            case Heading(title, _, _):
                yield f"\n{title}\n"
            case Note(title, inside, _):
                said = " ".join(_lines(inside))
                yield textwrap.fill(f"{title.strip(' .').upper()}: {said}\n", WIDTH) + "\n"
            case Table():
                yield f"{block.text}\n"
