"""`python -m validation.paper_places`: write docs/papers.md, the place of each published figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.published.claims import claims
from analysis.published.reference import (
    MARK,
    citations,
    mark_unsafe,
    published,
    rows,
    unsafe_algorithms,
)
from analysis.stats.comparison import LEAST_EQUIVALENT


@dataclass(frozen=True)
class Place:
    """A table, figure or statement of a paper, and its counterpart in this testbed.

    `entries` are its entries in the paper's CSV; empty where it has no numbers. `suite` (a file of
    workloads/suites), `workload` and `shown` (phases and quantity) name the counterpart; `why`
    gives the reason why there is none, or what it lacks.
    """

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
    """Return the places of one paper, or of all, in the order of the papers."""
    return tuple(
        Place(
            entries=tuple(row["entries"].split()),
            **{key: value for key, value in row.items() if key != "entries"},
        )
        for row in rows("places")
        if paper in (None, row["paper"])
    )


PAGE = Path(__file__).parents[1] / "docs" / "papers.md"
HEAD = """# The five papers and this testbed

Every table, figure and numeric statement of the five papers, with the workload and figures that
correspond to it here. A report shows the published figures of every paper that has a counterpart
among its suite's workloads.

To change this page, edit `data/reference/places.csv` and run `python -m validation.paper_places`.
"""
CLAIMS = f"""
## Claims

`data/reference/claims.yml` states the papers' claims as predicates over ratios of time, energy,
power or processor use, of two configurations or two phases. A report tests those for which its
suite has the workloads, configurations, disks and meters.

- The predicate is `less`, `more`, `same within` or `at most` some percent. "Similar" and "slight"
  are 5 %, of access times 10 %.
- A ratio is supported if its interval lies within the predicate, contradicted if it lies outside,
  else open. A claim is supported if all of its ratios are, contradicted if one is.
- The intervals of all tested ratios hold together at 95 % (Bonferroni), with the meter's error.
- `same within` and `at most` take {LEAST_EQUIVALENT} blocks and runs of one level, as the verdict
  *equivalent* does.
- A claim about an HDD, SSHD, SSD or flash drive takes a disk that the inventory calls `hdd`,
  `sshd`, `ssd` or `flash`.

Not claims: sentences with numbers only, costs over a drive's life, security, supposed reasons.
"""
COLUMNS = "| where | what | ours |\n|---|---|---|\n"


def page() -> str:
    """Return the page as Markdown."""
    return HEAD + _claims() + "".join(_paper(c.paper, c.text) for c in citations()) + _unsafe()


def _claims() -> str:
    """Return how many sentences are tested, and how their verdicts are reached."""
    counts = Counter(claim.paper for claim in claims())
    ratios = Counter(claim.paper for claim in claims() for _ in claim.ratios)
    rows = "".join(f"| {c.short} | {counts[c.paper]} | {ratios[c.paper]} |\n" for c in citations())
    total = f"| all | {counts.total()} | {ratios.total()} |\n"
    return f"{CLAIMS}\n| paper | claims | ratios |\n|---|---|---|\n{rows}{total}"


def _paper(paper: str, citation: str) -> str:
    covered = [place for place in places(paper) if place.ours]
    count = Counter(place.why for place in covered if place.why)
    # A remark of several places is printed once, below the table, with a number.
    footnotes = {remark: n for n, remark in enumerate((r for r in count if count[r] > 1), start=1)}
    firsts: dict[tuple[str, str], str] = {}
    for place in covered:
        firsts.setdefault((place.workload, place.shown), place.place)
    table = "".join(_row(place, footnotes, firsts) for place in covered)
    notes = "".join(f"\n({number}) {remark}\n" for remark, number in footnotes.items())
    suites = ", ".join(f"`{name}`" for name in dict.fromkeys(place.suite for place in covered))
    counts = (
        f"Suite {suites}. {len(places(paper))} places, {len(covered)} with figures of ours; "
        f"{len(published(paper))} figures in `data/reference/{paper}.csv`. {_counterparts(paper)}"
    )
    return f"\n## {citation}\n\n{counts}\n\n{COLUMNS}{table}{notes}{_uncovered(paper)}"


def _uncovered(paper: str) -> str:
    """Return the places without a counterpart, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for place in places(paper):
        if not place.ours:
            by_reason.setdefault(place.why, []).append(f"{mark_unsafe(place.what)} ({place.place})")
    return "".join(
        f"\nNo counterpart ({why}): {', '.join(names)}.\n" for why, names in by_reason.items()
    )


def _counterparts(paper: str) -> str:
    """Return how many figures have a counterpart, and how many of them count for agreement."""
    row = next(row for row in rows("counterparts") if row["paper"] == paper)
    text = f"Of these {row['counterparts']} have a counterpart here"
    if row["external"] != "0":
        text += f", {row['external']} of them on a program that you must bring (`external`)"
    return f"{text}; {row['counting']} count for agreement."


def _row(place: Place, footnotes: Mapping[str, int], firsts: Mapping[tuple[str, str], str]) -> str:
    first = firsts[place.workload, place.shown]
    shown = f"`{place.workload}`, {place.shown}" if first == place.place else f"as {first}"
    remark = f"({footnotes[place.why]})" if place.why in footnotes else place.why
    remarks = "; ".join(filter(None, (shown, remark)))
    return f"| {place.place} | {mark_unsafe(place.what)} | {remarks} |\n"


def _unsafe() -> str:
    lines = "".join(
        f"| {item.name} | {item.why} | {item.source} |\n" for item in unsafe_algorithms()
    )
    return (
        f"\n## What is unsafe today\n\nMarked {MARK} wherever a table of the report or of this "
        "page names it.\n\n"
        f"| what | why | source |\n|---|---|---|\n{lines}"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
