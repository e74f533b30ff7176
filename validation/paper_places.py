"""`python -m validation.paper_places`: write docs/papers.md, the place of each published figure."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.published.claims import Claim, claims
from analysis.published.counterparts import counterparts
from analysis.published.reference import (
    MARK,
    Published,
    citations,
    mark_unsafe,
    published,
    rows,
    unsafe_algorithms,
)
from analysis.report.published_section import own_figures
from analysis.stats.comparison import LEAST_EQUIVALENT
from validation import papers


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

Every table, figure and statement of the five papers, with what corresponds to it here: first each
sentence that is claimed, and each system and method, then tables and figures. A report shows the
published figures of every paper that has a counterpart among its suite's workloads.

Newer measurements are missing. The nearest, Hu et al., *Taming energy cost of disk encryption
software on data-intensive mobile devices* (Future Generation Computer Systems, 2017), compares its
own software with dm-crypt on phones; its tables were not at hand when this page was written.

To change this page, edit `places.csv`, `claims.yml` or `sentences.csv` in `data/reference` and run
`python -m validation.paper_places`.
"""
CLAIMS = f"""
## Sentences

`data/reference/claims.yml` states the papers' claims as predicates over ratios of time, energy,
power or processor use, of two configurations or two phases. A report tests those for which its
suite has the workloads, configurations, disks and meters.

- The predicate is `less`, `more`, `same within` or `at most` some percent; each percentage has its
  source below the table of its paper.
- A ratio is supported if its interval lies within the predicate, contradicted if it lies outside,
  else open. A claim is supported if all of its ratios are, or the share that it is about.
- Conditions that a paper states (`data/reference/conditions.csv`: sizes, syncing, kind and number
  of disks, queries, caches) hold for its figures and claims. Under another one a ratio is *not
  comparable*: it is shown with what differs, and neither supports nor contradicts.
- Modelled figures *agree* or *disagree with the model*, and contradict no paper.
- Where the paper's own printed figures violate its sentence, the page states that, and a suite
  whose figures violate it, too, contradicts it *by the paper's own figures*.
- At most 5 % for any false verdict of a claim in a report (Holm), with the meter's error.
- `same within` and `at most` take {LEAST_EQUIVALENT} blocks and runs of one level, as the verdict
  *equivalent* does.

The reading of a sentence is *to the letter*, or it differs in part or wholly for a stated reason.
"""
WORDS = {"letter": "to the letter", "reason": "with a reason", "part": "in part"}
COLUMNS = "| where | what | ours |\n|---|---|---|\n"


@dataclass(frozen=True)
class Sentence:
    """A sentence, system or method of a paper, and how far ours goes with it (`WORDS`)."""

    paper: str
    place: str
    sentence: str
    suits: str
    ours: str
    why: str


@cache
def sentences(paper: str) -> tuple[Sentence, ...]:
    """Return a paper's systems and methods, then its claims."""
    stated = (Sentence(**row) for row in rows("sentences") if row["paper"] == paper)
    of_claims = (
        Sentence(paper, c.place, c.text, c.suits, _tested(c), c.why)
        for c in claims()
        if c.paper == paper
    )
    return (*stated, *of_claims)


def _tested(claim: Claim) -> str:
    """Return the suite, the workloads and what is claimed of how many ratios."""
    workloads = dict.fromkeys(f"`{name}`" for ratio in claim.ratios for name in ratio.workload)
    claimed = dict.fromkeys(ratio.claimed for ratio in claim.ratios)
    number = len(claim.ratios)
    ratios = f"{number} ratio{'s' * (number > 1)}"
    if claim.share < 1:
        ratios = f"{claim.needed} of {ratios}"
    return f"suite `{claim.suite}`, {', '.join(workloads)}: {ratios}, {', '.join(claimed)}"


def page() -> str:
    """Return the page as Markdown."""
    papers = "".join(_paper(citation.paper, citation.text) for citation in citations())
    return HEAD + _counts() + _in_lab() + papers + _unsafe()


def _counts() -> str:
    """Return how verdicts are reached, and how many sentences are tested how closely."""
    lines = []
    total: Counter[str] = Counter()
    for citation in citations():
        ratios = sum(len(claim.ratios) for claim in claims() if claim.paper == citation.paper)
        suits = Counter(sentence.suits for sentence in sentences(citation.paper))
        suits |= Counter({"all": suits.total(), "ratios": ratios})
        total += suits
        lines.append(_count_row(citation.short, suits))
    columns = " | ".join(["sentences", *WORDS.values(), "ratios"])
    head = f"| paper | {columns} |\n|{'---|' * 6}\n"
    return f"{CLAIMS}\n{head}{''.join(lines)}{_count_row('all', total)}"


IN_LAB = """
## In the virtual lab

`make papers` runs the suites that decide these sentences in the virtual lab, at its sizes. It shows
that every experiment runs to a verified report. It is no evidence about disks: the lab's joules and
disks are modelled, and many of its files are smaller than the paper's, so that sentences are *not
comparable*. One block has no interval and leaves the others open. `media-closed` is not run,
because it needs a product that you must bring.

*agree* to *not comparable* count claims. *figures* are printed ones with a counterpart in the
suite; *comparable* are those under the paper's conditions.

"""


def _in_lab() -> str:
    """Return the table of each suite's last verified run by `validation.papers`."""
    with papers.TABLE.open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    heads = [name.replace("_", " ") for name in table[0]]
    lines = [f"| {' | '.join(cells)} |\n" for cells in (heads, *(row.values() for row in table))]
    return f"{IN_LAB}{lines[0]}|{'---|' * len(heads)}\n{''.join(lines[1:])}"


def _count_row(name: str, suits: Mapping[str, int]) -> str:
    cells = [str(suits.get(key, 0)) for key in ("all", *WORDS, "ratios")]
    return f"| {' | '.join([name, *cells])} |\n"


def _sentences(paper: str) -> str:
    """Return a paper's sentences one by one, and where its own figures violate them."""
    table = "".join(
        f"| {s.place} | {mark_unsafe(s.sentence)} | {s.ours} | {WORDS[s.suits]} | {s.why} |\n"
        for s in sentences(paper)
    )
    head = "| where | sentence | ours | reading | why not to the letter |\n|---|---|---|---|---|\n"
    of_paper = [claim for claim in claims() if claim.paper == paper]
    violated = [text for claim in of_paper for text in own_figures(claim)]
    sources = [
        f"{ratio.claimed}: {ratio.threshold}."
        for claim in of_paper
        for ratio in claim.ratios
        if ratio.threshold
    ]
    return (
        f"\n{head}{table}"
        + _listed("Where the percentages come from:", sources)
        + _listed("Where the paper's own figures violate its sentences:", violated)
    )


def _listed(title: str, items: Sequence[str]) -> str:
    bullets = "".join(f"- {item}\n" for item in dict.fromkeys(items))
    return f"\n{title}\n\n{bullets}" if items else ""


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
    places_of = f"\n{COLUMNS}{table}{notes}{_uncovered(paper)}"
    return f"\n## {citation}\n\n{counts}\n{_sentences(paper)}{places_of}"


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
    """Return how many figures can stand beside ours, are settings, or have nothing here."""
    shown = [figure for figure in published(paper) if counterparts(figure)]
    absent = [row for row in rows("settings") if row["paper"] == paper and row["kind"] == "none"]
    without = sum(any(_is_of(figure, row) for row in absent) for figure in published(paper))
    shown = [figure for figure in shown if not any(_is_of(figure, row) for row in absent)]
    closed = sum(
        all(
            "bestcrypt" in single.configuration
            for c in counterparts(figure)
            for single in c.singles
        )
        for figure in shown
    )
    settings = len(published(paper)) - len(shown) - without
    program = f", {closed} of them on a program that you must bring (`external`)" * bool(closed)
    return (
        f"{len(shown)} of these can stand beside ours in a report{program}; {settings} are "
        f"settings, sums and facts that `settings.csv` assigns; {without} have nothing here, for "
        "the reasons there."
    )


def _is_of(figure: Published, row: Mapping[str, str]) -> bool:
    """Return whether a row of settings.csv is about a figure."""
    return (
        row["entry"] == figure.entry
        and row["subject"] in ("", figure.subject)
        and row["quantity"] in ("", figure.quantity)
    )


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
