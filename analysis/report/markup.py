"""Pieces of HTML for the report: tables in their own containers, embedded SVG, notes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from matplotlib.figure import Figure

from analysis.report.figures import style
from analysis.suite.records import MEASURED

STYLE = Path(__file__).parent / "template" / "report.css"
UNIT = re.compile(r" (?=%)|(?<=\d) (?=(?:J|W|s|h|kJ|kWh)(?![A-Za-z]))")
VERDICT_CLASSES = frozenset({"differs", "equivalent", "inconclusive"})


@dataclass(frozen=True)
class Html:
    """HTML that a notebook shows as such; `+` joins."""

    text: str

    def __add__(self, other: Html) -> Html:
        return Html(self.text + other.text)

    def _repr_html_(self) -> str:
        return self.text


EMPTY = Html("")


def join(parts: Iterable[Html]) -> Html:
    """One piece after the other."""
    return Html("".join(part.text for part in parts))


def paragraph(text: str, kind: str = "") -> Html:
    """Plain text as a paragraph of the class `kind`."""
    attribute = f' class="{kind}"' if kind else ""
    return Html(f"<p{attribute}>{shown(text)}</p>\n")


def heading(text: str, level: int, anchor: str = "") -> Html:
    """A heading, with an anchor where given."""
    attribute = f' id="{escape(anchor)}"' if anchor else ""
    return Html(f"<h{level}{attribute}>{escape(text)}</h{level}>\n")


def bullets(texts: Iterable[str]) -> Html:
    """A list of sentences."""
    items = "".join(f"<li>{shown(text)}</li>" for text in texts)
    return Html(f"<ul>{items}</ul>\n") if items else EMPTY


def note(title: str, body: Html, kind: str) -> Html:
    """A box; `kind` is `modelled`, `warning` or `plain`."""
    return Html(
        f'<div class="note {kind}" role="note"><strong>{escape(title)}</strong>{body.text}</div>\n'
    )


def tag(origin: str) -> str:
    """The mark of figures that are not measured."""
    if not origin or origin == MEASURED:
        return ""
    return f' <span class="tag">{escape(origin)}</span>'


def table(
    caption: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    words: int = 1,
    origin: str = "",
    group: bool = False,
) -> Html:
    """A table that scrolls inside its own container; `words` columns of text, then figures.

    With `group` rows of one first cell stand together, under that cell once.
    """
    if not rows:
        return EMPTY
    head = "".join(
        f'<th scope="col"{"" if h == "Verdict" else _kind(i, words)}>{shown(h)}</th>'
        for i, h in enumerate(headers)
    )
    span = _spans([row[0] for row in rows]) if group else [1] * len(rows)
    kind = ' class="grouped"' if group else ""
    body = []
    for height, row in zip(span, rows, strict=True):
        cells = [_head(row[0], height)] if height else []
        cells += [_data(i, text, words) for i, text in enumerate(row[1:], start=1)]
        opening = ' class="group"' if group and height else ""
        body.append(f"<tr{opening}>{''.join(cells)}</tr>")
    return Html(
        f'<section class="table"><p class="caption">{shown(caption)}{tag(origin)}</p>'
        f'<div class="scroll" tabindex="0"><table{kind} aria-label="{escape(caption)}">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div></section>\n"
    )


def _spans(names: Sequence[str]) -> list[int]:
    """Height of each row's first cell; 0 where the cell above reaches down."""
    heights: list[int] = []
    for _, same in groupby(names):
        count = len(list(same))
        heights += [count, *[0] * (count - 1)]
    return heights


def shown(plain: str) -> str:
    """Escaped; a figure stays on one line with its unit and its interval."""
    return UNIT.sub("\u00a0", escape(plain)).replace(" ± ", "\u00a0±\u00a0")


def _kind(index: int, words: int) -> str:
    return "" if index < words else ' class="figure"'


def _head(text: str, height: int) -> str:
    reach = f' rowspan="{height}"' if height > 1 else ""
    return f'<th scope="row"{reach}>{shown(text)}</th>'


def _data(index: int, text: str, words: int) -> str:
    verdict = text.partition(":")[0]
    if verdict in VERDICT_CLASSES:
        return f'<td><span class="verdict {verdict}">{shown(text)}</span></td>'
    return f"<td{_kind(index, words)}>{shown(text)}</td>"


def picture(figure: Figure | None, caption: str, origin: str, wide: bool = False) -> Html:
    """A figure as an SVG within the page; the caption is its text for those who cannot see it."""
    if figure is None:
        return EMPTY
    data = base64.b64encode(style.svg(figure).encode()).decode("ascii")
    kind = ' class="wide"' if wide else ""
    return Html(
        f'<figure{kind}><div class="scroll"><img alt="{escape(caption, quote=True)}" '
        f'src="data:image/svg+xml;base64,{data}"></div><figcaption>{shown(caption)}{tag(origin)}</figcaption>'
        "</figure>\n"
    )


def gallery(figures: Iterable[Html]) -> Html:
    """Figures side by side where there is room."""
    inside = join(figures)
    return Html(f'<div class="gallery">{inside.text}</div>\n') if inside.text else EMPTY


def columns(one: Html, aside: Html, below: Html) -> Html:
    """`aside` stands right of both others where there is room, else between them."""
    if not aside.text:
        return one + below
    inside = f'<div>{one.text}</div><div class="aside">{aside.text}</div><div>{below.text}</div>'
    return Html(f'<div class="columns">{inside}</div>\n')


def links(label: str, targets: Iterable[tuple[str, str]]) -> Html:
    """An index: names and the anchors that they lead to."""
    items = "".join(
        f'<li><a href="#{escape(anchor, quote=True)}">{escape(name)}</a></li>'
        for name, anchor in targets
    )
    return Html(f'<nav aria-label="{escape(label)}"><ul>{items}</ul></nav>\n') if items else EMPTY


def folded(summary: str, body: Html, kind: str = "") -> Html:
    """Something that only opens when asked for; of the kind `screen` it is not printed."""
    attribute = f' class="{kind}"' if kind else ""
    return Html(f"<details{attribute}><summary>{shown(summary)}</summary>{body.text}</details>\n")


def preformatted(text: str) -> Html:
    """Text as it stands."""
    return Html(f'<div class="scroll" tabindex="0"><pre>{escape(text)}</pre></div>\n')


def page(title: str, inside: Html) -> str:
    """A whole page that needs no network, in the report's style."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n"
        f"</head>\n<body>\n<main>\n{inside.text}</main>\n</body>\n</html>\n"
    )
