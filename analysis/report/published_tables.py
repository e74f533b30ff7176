"""Tables of published figures: a column a subject where few are compared, else one a quantity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from analysis.published import reference
from analysis.published.reference import CONDITIONS, Published, configurations
from analysis.report import view, words
from analysis.report.view import Blocks

DOUBT = "*"
FEW = range(2, 5)
LISTED = 4
HEADINGS = {
    "place": "Where",
    "file_type": "Files",
    "size_bytes": "Size",
    "block_bytes": "Block",
    "mode": "Mode",
    "pattern": "Pattern",
    "device": "Device",
    "software": "Software",
    "iterations": "Iterations",
    "machine": "Machine",
}
UNITLESS = "none"
UNENCRYPTED = "none"
Text = Callable[[Published], str]


def value(figure: Published) -> str:
    """The figure as printed, with its ±, the mark of doubt, and what it must have read."""
    half = f" ± {figure.printed_half}" if figure.printed_half else ""
    read = "" if figure.fitting is None else f" (read as {figure.fitting:g})"
    return f"{figure.printed}{half}{DOUBT if figure.doubtful else ''}{read}"


def configuration_name(name: str) -> str:
    """A configuration of the reference tables for people."""
    known = configurations().get(name)
    return known.label if known else name


def tables(figures: Sequence[Published]) -> Blocks:
    """All of them, in the order given; entries of the same subjects share a table."""
    shapes: dict[tuple[str, ...], list[Published]] = {}
    for _, same in groupby(figures, key=lambda p: (p.entry, p.place)):
        part = list(same)
        subjects = tuple(sorted({_subject(p) for p in part}))
        full = len(part) >= LISTED and len(subjects) > 1 and all(subjects)
        shapes.setdefault(subjects if full else (), []).extend(part)
    return view.join(
        _table(subjects, part)
        for subjects, part in sorted(shapes.items(), key=lambda item: not item[0])
    )


def _table(subjects: Sequence[str], part: Sequence[Published]) -> Blocks:
    if not subjects:
        return _listed(part)
    if len(subjects) in FEW:
        return _pivot(part, ("What", _done_in), _subject, value)
    return _pivot(part, ("Subject", _subject), _done, _with_unit)


def doubts(figures: Iterable[Published]) -> Blocks:
    """The doubtful figures, those of one reason together; folded."""
    by: dict[str, list[Published]] = {}
    for figure in figures:
        if figure.doubtful:
            by.setdefault(figure.note, []).append(figure)
    count = sum(len(part) for part in by.values())
    if not count:
        return ()
    return view.folded(
        f"{count} doubtful figures, left as printed ({len(by)} reasons)",
        view.bullets(f"{_who(part)}. {r[:1].upper()}{r[1:]}." for r, part in by.items()),
    )


def _who(part: Sequence[Published]) -> str:
    places = _places(part)
    if len(part) > LISTED:
        return f"{places}: {len(part)} figures"
    each = "; ".join(f"{_what(p)}: {p.printed}{_unit(p)}" for p in part)
    return f"{places}. {each}"


def _subject(figure: Published) -> str:
    if figure.subject == UNENCRYPTED and not figure.configuration:
        return "not encrypted"
    return configuration_name(figure.configuration) or reference.marked(figure.subject)


def _what(figure: Published) -> str:
    size = size_of(figure.block_bytes or figure.size_bytes)
    parts = [_subject(figure), _quantity(figure), figure.operation, size]
    return ", ".join(filter(None, parts))


def _quantity(figure: Published) -> str:
    return figure.quantity.replace("_", " ")


def _unit(figure: Published) -> str:
    return "" if figure.unit == UNITLESS else f" {figure.unit}"


def _done(figure: Published) -> str:
    return ", ".join(filter(None, [_quantity(figure), figure.operation]))


def _done_in(figure: Published) -> str:
    return _done(figure) + ("" if figure.unit == UNITLESS else f" ({figure.unit})")


def _with_unit(figure: Published) -> str:
    return f"{value(figure)}{_unit(figure)}"


def _pivot(part: Sequence[Published], row: tuple[str, Text], column: Text, cell: Text) -> Blocks:
    """A `row` (heading, text) for what differs in its `column` only.

    Conditions that hold for a whole place stand with it; those of all places in the caption.
    """
    columns = list(dict.fromkeys(column(p) for p in part))
    free = [n for n in CONDITIONS if n != "operation"]  # that stands with the quantity
    common = [n for n in free if len({_cell(p, n) for p in part}) == 1]
    names = [n for n in free if _varies(part, n, lambda p: f"{p.place}|{column(p)}")]
    of_place = [
        n for n in free if n not in {*names, *common} and not _varies(part, n, lambda p: p.place)
    ]
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for figure in part:
        place = ", ".join(filter(None, [figure.place, *(_cell(figure, n) for n in of_place)]))
        key = (place, *(_cell(figure, n) for n in names), row[1](figure))
        rows.setdefault(key, {})[column(figure)] = cell(figure)
    headers = [HEADINGS["place"], *(HEADINGS[name] for name in names), row[0]]
    caption = ", ".join([_places(part), *filter(None, (_cell(part[0], n) for n in common))])
    lines = [
        [*key, *(cells.get(name, words.NOTHING) for name in columns)] for key, cells in rows.items()
    ]
    return view.table(caption, [*headers, *columns], lines, words=len(headers), group=True)


def _varies(part: Sequence[Published], name: str, within: Text) -> bool:
    """Whether a condition has two values among the figures of one `within`."""
    values: dict[str, set[str]] = {}
    for figure in part:
        values.setdefault(within(figure), set()).add(_cell(figure, name))
    return any(len(found) > 1 for found in values.values())


def _places(part: Sequence[Published]) -> str:
    places = list(dict.fromkeys(p.place for p in part))
    return ", ".join(places) if len(places) < FEW.stop else f"{places[0]} to {places[-1]}"


def _listed(part: Sequence[Published]) -> Blocks:
    rows = [[p.place, _with_unit(p), _plainly(p)] for p in part]
    return view.table("Other figures", ["Where", "Value", "What"], rows, words=3, group=True)


def _plainly(figure: Published) -> str:
    """Quantity, subject and conditions in a row."""
    titled = words.name_of(figure.entry)
    name = _quantity(figure) if titled == figure.entry else f"{titled}: {_quantity(figure)}"
    names = ("operation", "pattern", "mode", *([] if figure.configuration else ["device"]))
    conditions = (_cell(figure, n) for n in names)
    return ", ".join(filter(None, [name, _subject(figure), *conditions]))


def _cell(figure: Published, name: str) -> str:
    given = getattr(figure, name)
    if given is None:
        return ""
    if name in ("size_bytes", "block_bytes"):
        return words.size(given)
    return reference.marked(str(given))


def size_of(size: int | None) -> str:
    """A size as the papers write it; empty where there is none."""
    return words.size(size) if size else ""
