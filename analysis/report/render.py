"""A page as one HTML file that needs no network, and blocks as text for a terminal."""

from __future__ import annotations

import json
import re
import textwrap
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.report.texts import LANGUAGE, Term, catalogue
from analysis.report.view import (
    Answer,
    Blocks,
    Bullets,
    Columns,
    Facts,
    Heading,
    Note,
    Page,
    Paragraph,
    Remarks,
    Table,
)
from contract import names

TEMPLATES = Path(__file__).parent / "templates"

WIDTH = 80  # of sentences on a terminal; a table is wider where it must be
UNIT = re.compile(r" (?=%)|(?<=\d) (?=(?:J|W|s|h|kJ|kWh)(?![A-Za-z]))")


def html(page: Page) -> str:
    """Return the page in the report's style, with all its texts escaped.

    Its policy lets a browser run only our own scripts, and load nothing.
    """
    templates = environment()
    explained = Explaining(page.terms)
    templates.filters["explained"] = explained
    script = Markup((TEMPLATES / "report.js").read_text(encoding="utf-8"))
    texts = catalogue().texts.items()
    script_texts = {k.removeprefix("script."): v for k, v in texts if k.startswith("script.")}
    return templates.get_template("page.html.j2").render(
        page=page,
        explained=explained,
        close=catalogue().texts["term.close"],
        language=LANGUAGE,
        words=json.dumps(script_texts, ensure_ascii=False),
        script=script,
        # The source expression by which a policy allows a script (CSP 3, hash-source).
        digest=f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'",
    )


def environment() -> Environment:
    """Return the templates, which escape their values and drop unprintable characters."""

    def printable(value: object) -> object:
        plain = isinstance(value, str) and not isinstance(value, Markup)
        return names.printable(str(value)) if plain else value

    templates = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["shown"] = templates.filters["explained"] = shown
    return templates


class Explaining:
    """A filter that makes the first occurrence of each term a button that shows its meaning."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self._unexplained = {term.name: term for term in terms}
        self.terms: list[Term] = []  # that occurred

    def __call__(self, text: str) -> Markup:
        """Return the text as markup."""
        html = str(escape(shown(text)))
        places: list[tuple[int, int, Term]] = []
        for term in list(self._unexplained.values()):
            match = _pattern(term).search(html)
            if match and not any(a < match.end() and match.start() < b for a, b, _ in places):
                places.append((match.start(), match.end(), term))
                self.terms.append(self._unexplained.pop(term.name))
        for start, last, term in sorted(places, key=lambda place: -place[0]):
            end = last
            button = f'<button type="button" class="term" popovertarget="{escape(term.anchor)}">'
            mark = f"{button}{html[start:end]}</button>"
            begin = len(html[:start].rstrip("(["))
            if stop := _STOP.match(html, end):
                end = stop.end()
            if begin < start or last < end:  # else a line could begin or end with them
                mark = f'<span class="whole">{html[begin:start]}{mark}{html[last:end]}</span>'
            html = f"{html[:begin]}{mark}{html[end:]}"
        return Markup(html)


_STOP = re.compile(r"[.,;:)]+")


@cache
def _pattern(term: Term) -> re.Pattern[str]:
    forms = "|".join(r"\s".join(map(re.escape, form.split())) for form in term.forms)
    return re.compile(rf"(?<![\w&-])(?:{forms})(?![\w-])", re.IGNORECASE)


def shown(text: str) -> str:
    """Return a text in which a figure stays on one line with its unit and interval."""
    return UNIT.sub("\u00a0", names.printable(text)).replace(" ± ", "\u00a0±\u00a0")


def text(blocks: Blocks) -> str:
    """Return blocks as text for a terminal; kinds that only the page can show are left out."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_lines(blocks)))


INDENT = " " * 12  # where the first page's lines begin behind their labels


def _filled(text: str, lead: str = "", indent: str = "") -> str:
    """Wrap a text after `lead` and then `indent`, keeping figures with their units."""
    lines = textwrap.fill(
        shown(text),
        WIDTH,
        initial_indent=lead,
        subsequent_indent=indent,
        break_long_words=False,  # so that a path can be copied
        break_on_hyphens=False,
    )
    return lines.replace("\u00a0", " ")


def _lines(blocks: Blocks) -> Iterator[str]:
    labelled = any(isinstance(block, Answer) and block.label for block in blocks)
    indent = INDENT if labelled else ""
    for block in blocks:
        match block:
            case Paragraph(text, kind):
                yield _filled(text) + "\n" * (kind == "key")
            case Facts(text, mark):
                yield _filled(text + f" [{mark}]" * bool(mark)) + "\n"
            case Columns(first, aside):
                yield from _lines((*first, *aside))
            case Answer():
                lead = f"{block.label}:".ljust(len(indent)) if block.label else indent
                yield _filled(f"{block.verdict}{block.reason}", lead, indent)
                if block.command:  # never cut, so that it can be copied
                    yield f"{indent}{block.command}"
            case Bullets(items):
                yield from items
            case Heading(title, _, _):
                yield f"\n{title}\n"
            case Remarks(remarks):
                for remark in remarks:
                    yield _filled(" ".join([remark.text, *remark.more]), "- ", "  ")
            case Note(title, inside):
                text = " ".join(_lines(inside))
                yield _filled(f"{title.strip(' .').upper()}: {text}") + "\n"
            case Table():
                yield f"{block.text}\n"
