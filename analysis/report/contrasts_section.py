"""The contrasts that the answer rests on, with their tests, and what a next suite would need."""

from __future__ import annotations

from analysis.report import answer, markup, words
from analysis.report.markup import Html
from analysis.stats import planning
from analysis.stats.contrasts import Contrast, by_workload
from analysis.stats.results import Results

HEADERS = (
    "Contrast",
    "Declared",
    "Change [95 % interval]",
    "n",
    "Workloads",
    "p, Holm",
    "p, equivalence, Holm",
    "p, permutation",
    "Detectable",
    "Verdict",
)


def contrasts_section(found: Results) -> Html:
    """One table of the family, its terms in one line each, and the next suite."""
    compared = found.contrasts
    page = markup.table(
        f"Contrasts: system energy over {_over(found)} (geometric mean within a block)",
        HEADERS,
        [_row(found, contrast) for contrast in compared],
        words=2,
        origin=found.origin,
    )
    if not compared:
        return markup.paragraph("The plan has no two configurations to compare.")
    tested = [c.comparison for c in compared if c.comparison and c.comparison.p_value is not None]
    page += markup.bullets(_terms(len(tested), max((c.n for c in tested), default=0)))
    alone = _by_workload(found)
    page += markup.folded("The same in each workload alone", alone) if alone.text else markup.EMPTY
    return page + markup.paragraph(str(found.next_suite["sentence"]))


def _over(found: Results) -> str:
    return f"“{answer.over_all(found.suite)}”"


def _by_workload(found: Results) -> Html:
    """Declared contrasts of two kinds of encryption, with the extra blocks that each has."""
    label = found.suite.label
    rows = []
    for one in by_workload(found.suite, found.energy):
        c = one.comparison
        rows.append(
            [
                f"{label(one.other)} against {label(one.base)}",
                words.name_of(one.workload),
                words.change_of(c.ratio, c.low, c.high),
                str(c.n),
                words.p_value(c.p_holm),
                words.verdict(c.verdict, c.ratio, c.both),
            ]
        )
    return markup.table(
        "Declared contrasts of two encryptions in each workload: system energy; one family (Holm)",
        ["Contrast", "Workload", "Change [95 % interval]", "n", "p, Holm", "Verdict"],
        rows,
        words=2,
        origin=found.origin,
        group=True,
    )


def _row(found: Results, contrast: Contrast) -> list[str]:
    label = found.suite.label
    head = [
        f"{label(contrast.other)} against {label(contrast.base)}",
        "yes" if contrast.declared else "no",
    ]
    c = contrast.comparison
    if c is None:
        return [*head, words.NOTHING, "0", "0", *[words.NOTHING] * 4, "inconclusive"]
    smallest = planning.detectable(c.sd_log, c.n)
    return [
        *head,
        words.change_of(c.ratio, c.low, c.high),
        str(c.n),
        str(len(contrast.workloads)),
        words.p_value(c.p_holm),
        words.p_value(c.p_equivalence_holm),
        words.p_value(contrast.permutation_p),
        words.NOTHING if smallest is None else words.percent(smallest),
        words.verdict(c.verdict, c.ratio, c.both),
    ]


def _terms(tests: int, blocks: int) -> list[str]:
    said = [
        "Each interval is its own row's, plain 95 %; the verdict counts all rows together.",
    ]
    if tests:
        least = 2 / 2 ** min(blocks, 99)
        floor = f"; {blocks} blocks cannot take it below {words.p_value(least)}"
        said += [
            f"Holm: these {tests} rows are one family. The smallest p is multiplied by {tests}, "
            "the next by one less and so on: among them all a false difference has at most 5 %, "
            "and so has a false equivalence.",
            "p, equivalence: of the two one-sided tests against the margin (TOST), the larger one.",
            "p, permutation: the same question without the normal distribution, by changing sides "
            f"within blocks{floor if least >= 0.001 else ''}.",
            "Detectable: a true change as large as this would have been found four times in five.",
        ]
    return said
