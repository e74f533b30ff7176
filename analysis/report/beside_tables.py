"""Tables of published figures with ours beside them: a line a place, and each place folded."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.published import unsafe
from analysis.published.agreement import agreement, judged
from analysis.published.beside import Beside
from analysis.published.reference import Published
from analysis.report import markup, phase_names, published_tables, words
from analysis.report.markup import Html
from analysis.report.units_section import joules
from analysis.stats.results import Results
from analysis.stats.summary import joint_origin
from analysis.suite.origin import MEASURED

FEW = 24  # so many rows are shown at once, more only folded
RATIOS = ("Ratio, published", "Ratio, here", "Agreement", "Published", "Here")


def tables(found: Results, rows: Sequence[Beside]) -> Html:
    """All of a paper's: as one table where they are few, else a summary and a fold a place."""
    if len(rows) <= FEW:
        return markup.join(
            _table(found, f"{_quantities(part).capitalize()}: published, and in this suite", part)
            for part in _by_origin(rows)
        )
    by_place: dict[str, list[Beside]] = {}
    for row in rows:
        by_place.setdefault(row.published.place, []).append(row)
    page = markup.table(
        "Published, and in this suite: how much agrees",
        ["Where", "What", "Figures", "Ratios", "Agree", "Pairs in the same order"],
        [_summary(place, part) for place, part in by_place.items()],
        words=2,
    )
    every = markup.join(
        _table(found, f"{place}: published, and in this suite", same)
        for place, part in by_place.items()
        for same in _by_origin(part)
    )
    return page + markup.folded(f"These {len(rows)} figures one by one", every, "screen")


def conditions(figure: Published) -> str:
    """What a figure was taken under, but for what is compared."""
    size = published_tables.size_of(figure.block_bytes or figure.size_bytes)
    parts = [figure.operation, figure.pattern, figure.file_type, size, figure.device]
    return ", ".join(part for part in parts if part)


def _by_origin(rows: Sequence[Beside]) -> list[list[Beside]]:
    origins = dict.fromkeys(row.origin for row in rows)
    return [[row for row in rows if row.origin == origin] for origin in origins]


def _quantities(rows: Sequence[Beside]) -> str:
    names = dict.fromkeys(row.published.quantity.replace("_", " ") for row in rows)
    return " and ".join(names)


def _summary(place: str, rows: Sequence[Beside]) -> list[str]:
    found = agreement(rows)
    return [
        place,
        _quantities(rows),
        str(len(rows)),
        str(found.ratios),
        str(found.words["agrees"]),
        f"{found.same_order} of {found.pairs}" if found.pairs else words.NOTHING,
    ]


def _table(found: Results, caption: str, rows: Sequence[Beside]) -> Html:
    origin = rows[0].origin
    modelled = joint_origin(found.energy)
    mark = f" ({modelled})" if modelled != MEASURED else ""
    return markup.table(
        caption,
        ["What", "Compared", *RATIOS, f"Joules here{mark}"],
        [_row(found, row) for row in rows],
        words=2,
        origin=origin,
        group=True,
    )


def _row(found: Results, row: Beside) -> list[str]:
    p = row.published
    mark = published_tables.DOUBT if p.doubtful else ""
    shown = row.joules_per or ""
    return [
        f"{_titled(p)} ({p.unit})",
        _compared(found, row),
        "1" if row.is_baseline else words.number(row.published_ratio, 3) + mark,
        "1" if row.is_baseline else words.ratio(row.measured_ratio),
        "" if row.is_baseline else judged(row) or words.NOTHING,
        published_tables.value(p),
        words.plus_minus(row.measured),
        joules(row.joules, shown) if shown else words.plus_minus(row.joules, "J"),
    ]


def _compared(found: Results, row: Beside) -> str:
    """The configuration where that is what is compared, else the algorithm; unsafe ones marked."""
    if row.published.configuration:
        return found.suite.label(row.configuration)
    more = [row.here.note]
    more += [found.suite.label(row.configuration)] if row.here.configuration else []
    more += [row.entry] if row.entry != row.here.workload else []
    if row.stands_in:
        more.append(f"here of {', '.join(_numbers(row))}")
    return ", ".join([unsafe.marked(row.here.member), *filter(None, more)])


def _numbers(row: Beside) -> list[str]:
    """What stands in, with its unit: derivations are of iterations, all else is of bytes."""
    if any(part.unit == "derivations" for part in row.here.parts):
        return [f"{phase_names.grouped(number)} iterations" for number in row.stands_in]
    return [published_tables.size_of(number) for number in row.stands_in]


def _titled(figure: Published) -> str:
    named = words.name_of(figure.entry)
    if figure.workload:
        return words.name_of(figure.workload) if named == figure.entry else named
    return conditions(figure) or figure.quantity.replace("_", " ")
