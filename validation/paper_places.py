"""All tables and figures of the papers: where ours is, or why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.published.reference import MARK, citations, known, marked, published, rows


@dataclass(frozen=True)
class Place:
    """A place of a paper. `entries` are those of its CSV that stand there; none where it has no
    numbers. `suite` (a file of workloads/suites) and `workload` say where ours is, `shown` at which
    phases and quantity; `why` says why there is none, or what of it is missing."""

    paper: str
    place: str
    entries: tuple[str, ...]
    what: str
    suite: str
    workload: str
    shown: str
    why: str

    @property
    def ours(self) -> bool:
        return bool(self.suite)


@cache
def places(paper: str | None = None) -> tuple[Place, ...]:
    """Those of one paper, or of all, in the order of the papers."""
    return tuple(
        Place(**row | {"entries": tuple(row["entries"].split())})
        for row in rows("places")
        if paper in (None, row["paper"])
    )


PAGE = Path(__file__).parents[1] / "docs" / "papers.md"
HEAD = """# The five papers and this testbed

Every table, figure and numeric statement of the five papers, with the suite, the workload and the
figures of this testbed that correspond to it, or the reason why there are none. Made from
`data/reference/places.csv` by `python -m validation.paper_places`: change that file, not this one.
A report shows the published figures beside its own for every paper of which its suite has a
workload.
`make bench-mission` counts, from the mapping and the suites, how many figures have a counterpart
here, and how many count for agreement (`build/bench/mission-figures.json` has each of them).
"""
COLUMNS = "| where | what | suite | workload | ours | remarks |\n|---|---|---|---|---|---|\n"


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_paper(c.paper, c.text) for c in citations()) + _unsafe()


def _paper(paper: str, citation: str) -> str:
    there = places(paper)
    with_ours = sum(place.ours for place in there)
    remarks = _repeated(there)
    rows_of_all = "".join(_row(place, remarks) for place in there)
    below = "".join(f"\n({number}) {remark}\n" for remark, number in remarks.items())
    counted = (
        f"{len(there)} places, {with_ours} of them with figures of ours; "
        f"{len(published(paper))} figures in `data/reference/{paper}.csv`. {_counterparts(paper)}"
    )
    return f"\n## {citation}\n\n{counted}\n\n{COLUMNS}{rows_of_all}{below}"


def _counterparts(paper: str) -> str:
    """How many figures have one here and count for agreement, as `validation.mission` counted."""
    one = next(row for row in rows("counterparts") if row["paper"] == paper)
    text = f"Of these {one['counterparts']} have a counterpart here"
    if one["external"] != "0":
        text += f", {one['external']} of them on a program that you must bring (`external`)"
    text += f"; {one['counting']} count for agreement."
    if one["without"]:
        text += f" Without: {one['without']}."
    return text + (f" Not counting: {one['not_counting']}." if one["not_counting"] else "")


def _repeated(there: Iterable[Place]) -> dict[str, int]:
    """Remarks of more than one place, numbered: they stand once, below the table."""
    count = Counter(place.why for place in there if place.why)
    return {remark: n for n, remark in enumerate((r for r in count if count[r] > 1), start=1)}


def _row(place: Place, remarks: Mapping[str, int]) -> str:
    suite = f"`{place.suite}`" if place.ours else "–"
    workload = f"`{place.workload}`" if place.ours else "–"
    remark = f"({remarks[place.why]})" if place.why in remarks else place.why
    return (
        f"| {place.place} | {marked(place.what)} | {suite} | {workload} "
        f"| {place.shown or '–'} | {remark} |\n"
    )


def _unsafe() -> str:
    rows = "".join(f"| {one.name} | {one.why} | {one.source} |\n" for one in known())
    return (
        f"\n## What is unsafe today\n\nMarked {MARK} wherever a table of the report or of this "
        "page names it. It is measured because the papers measured it.\n\n"
        f"| what | why | who says so |\n|---|---|---|\n{rows}"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
