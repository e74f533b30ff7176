"""The questions declared before the first run, their answers, and the tests behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis.report import answer, view, words
from analysis.report.view import Blocks, Fields
from analysis.report.words import parse
from analysis.stats import planning
from analysis.stats.between_disks import BetweenDisks, between_disks
from analysis.stats.comparison import Comparison
from analysis.stats.contrasts import (
    Answer,
    Contrast,
    InWorkload,
    Question,
    Side,
    by_workload,
    questions,
)
from analysis.stats.results import Results
from analysis.stats.stats import Estimate
from analysis.stats.summary import UNITS
from analysis.suite.records import TAIL


def contrasts_section(found: Results) -> Blocks:
    """One table of the family, its terms in one line each, and the next suite."""
    compared = found.contrasts
    if not compared:
        return view.paragraph("The plan has no two configurations to compare.")
    columns: Fields[Contrast] = {
        "Contrast": lambda one: _pair(found, one),
        "Declared": lambda one: "yes" if one.declared else "no",
        "Change [95 % interval]": lambda one: words.change_in(one.comparison),
        "n": lambda one: _of(one, lambda c: str(c.n), "0"),
        "Workloads": lambda one: str(len(one.workloads)),
        "Typical block [95 %]": lambda one: _of(one, _typical),
        "p, adjusted": lambda one: _of(one, lambda c: words.p_value(c.p_adjusted)),
        "p, equivalence, adjusted": lambda one: _of(
            one, lambda c: words.p_value(c.p_equivalence_adjusted)
        ),
        "p, permutation": lambda one: words.p_value(one.permutation_p),
        "Detectable": lambda one: _of(one, _detectable),
        "Verdict": lambda one: _of(one, words.verdict_of, "inconclusive"),
    }
    over = f"over “{answer.over_all(found.suite)}” (geometric mean within a block)"
    caption = f"Contrasts: system energy {over}"
    page = view.table_of(caption, compared, columns, words=2, origin=found.origin)
    tested = [c.comparison for c in compared if c.comparison and c.comparison.p_value is not None]
    page += view.bullets(_terms(found, len(tested), max((c.n for c in tested), default=0)))
    page += view.folded("The same in each workload alone", _by_workload(found))
    page += _between_disks(found)
    return page + view.paragraph(str(found.next_suite["sentence"]))


def _between_disks(found: Results) -> Blocks:
    """What each encryption costs on one disk beside another; nothing where there is one disk."""
    rows = between_disks(found.suite, found.energy)
    if not rows:
        return ()

    def cost(name: str) -> str:
        contrast = answer.against(found, found.suite.reference(name), name)
        return words.change_in(contrast.comparison) if contrast else words.NOTHING

    columns: Fields[BetweenDisks] = {
        "Encryption": lambda one: one.stack,
        "Disks": lambda one: " and ".join(map(found.suite.disk_of, (one.first, one.second))),
        "Change on the first": lambda one: cost(one.first),
        "On the second": lambda one: cost(one.second),
        "Second / first [95 %]": lambda one: words.change_in(one.comparison),
        "n": lambda one: str(one.comparison.n),
        "p, adjusted": lambda one: words.p_value(one.comparison.p_adjusted),
        "Verdict": lambda one: words.verdict_of(one.comparison),
    }
    what = "Does an encryption cost as much on one disk as on another? System energy; one family"
    table = view.table_of(what, rows, columns, words=2, origin=found.origin)
    return table + view.paragraph(
        "Each change is against the same disk without encryption, in the same block. Every disk of "
        "the machine draws its power in every run, whichever is used: with more of it a change is "
        "a smaller share. Joules of two disks without encryption are among the contrasts above.",
        "key",
    )


def _by_workload(found: Results) -> Blocks:
    """Declared contrasts of two kinds of encryption, with the extra blocks that each has."""
    columns: Fields[InWorkload] = {
        "Contrast": lambda one: _pair(found, one),
        "Workload": lambda one: words.name_of(one.workload),
        "Change [95 % interval]": lambda one: words.change_in(one.comparison),
        "n": lambda one: str(one.comparison.n),
        "p, adjusted": lambda one: words.p_value(one.comparison.p_adjusted),
        "Verdict": lambda one: words.verdict_of(one.comparison),
    }
    what = "Declared contrasts of two encryptions in each workload: system energy; one family"
    rows = by_workload(found.suite, found.energy)
    return view.table_of(what, rows, columns, words=2, origin=found.origin, group=True)


def _pair(found: Results, one: Contrast | InWorkload) -> str:
    return f"{found.suite.label(one.other)} against {found.suite.label(one.base)}"


def _of(
    one: Contrast | Answer, text: Callable[[Comparison], str], without: str = words.NOTHING
) -> str:
    return without if one.comparison is None else text(one.comparison)


def _typical(c: Comparison) -> str:
    if c.typical is None:
        return words.NOTHING
    ratio = c.typical.ratio
    return words.change_of(ratio.mid, ratio.low, ratio.high)


def _detectable(c: Comparison) -> str:
    smallest = planning.detectable(c)
    return words.NOTHING if smallest is None else words.percent(smallest)


def _terms(found: Results, tests: int, blocks: int) -> list[str]:
    if not tests:
        return [_kind_of_interval(found)]
    least = 2 / 2 ** min(blocks, 99)
    floor = f"; {blocks} blocks cannot take it below {words.p_value(least)}"
    return [
        _kind_of_interval(found),
        f"Adjusted: these {tests} rows are one family, with at most 5 % for any false verdict "
        "among them. Each test has 5 % divided by the rows that are still open; a row no longer "
        "counts once it is shown to be beyond the margin, or both of its tests reject.",
        _families(found),
        "p, equivalence: of the two one-sided tests against the margin (TOST), the larger one.",
        "p, permutation: the same question without the normal distribution, by changing sides "
        f"within blocks{floor if least >= 0.001 else ''}.",
        "Typical block: the median of all pairs' means (Hodges and Lehmann), which a rare stall "
        "does not move, from six blocks on. Where it is not within the margin as well, nothing is "
        "called equivalent.",
        "Detectable: a true change as large as this would have been found with 80 % power, at the "
        "level that its row was tested at.",
    ]


def _kind_of_interval(found: Results) -> str:
    """For one look, or for any number of them."""
    if found.suite.any_look:
        return (
            "Each interval and each p-value holds for any number of looks: the suite was declared "
            "to be looked at, ended and extended after any block (looks: any). They are wider than "
            "those of a suite with a number of blocks fixed beforehand."
        )
    return (
        "Each interval is its own row's, plain 95 %, for the number of blocks that was planned; "
        "the verdict counts all rows together."
    )


def _families(found: Results) -> str:
    """How many tables of verdicts there are, each with its own 5 %."""
    tables = {
        "this one": len(found.contrasts),
        "workload by workload against the baseline": len(found.summary["ratio"].drop_nulls()),
        "the declared contrasts in each workload": len(by_workload(found.suite, found.energy)),
        "the questions": len(found.answers),
    }
    there = [name for name, rows in tables.items() if rows]
    return (
        f"Families of verdicts on this page: {len(there)} ({', '.join(there)}), each with its own "
        "5 %; the first is the answer."
    )


def questions_section(found: Results) -> Blocks:
    """A heading, and each question with a sentence and its table; nothing where none was asked."""
    asked = questions(found.suite)
    if not asked:
        return ()
    page = view.paragraph(
        "Declared before the first run. The system's joules of one part of the suite against "
        "another on the same configuration, paired within blocks; all of them are one family.",
        "key",
    )
    for question in asked:
        answers = _answers(found, question)
        page += view.heading(question.question, 3, f"question-{question.name}")
        page += view.paragraph(sentence(found, question, answers), "answer")
        page += view.folded("Its figures", _table(found, question, answers))
    return page


def sentences(found: Results) -> list[str]:
    """Each question with its answer, for a terminal."""
    asked = questions(found.suite)
    return [f"{q.question} {sentence(found, q, _answers(found, q))}" for q in asked]


def _answers(found: Results, question: Question) -> list[Answer]:
    return [one for one in found.answers if one.question == question]


def sentence(found: Results, question: Question, answers: Sequence[Answer]) -> str:
    """The answer in words: configurations of one verdict together."""
    if question.fault:
        return f"This cannot be answered. {question.fault}"
    there = [(a, a.comparison) for a in answers if a.comparison is not None]
    if not there:
        return f"This cannot be answered: {_lacking(found, question)}."
    label = found.suite.label
    texts = [(f"{words.change_in(c)} with {label(a.configuration)}", c) for a, c in there]
    told = answer.judged(texts, ", ")
    missing = len(answers) - len(there)
    rest = f" Of {missing} more configurations no block has both sides." if missing else ""
    first = _side(question.first)
    return (
        f"{first[0].upper()}{first[1:]} takes{_per(question)}, against {_side(question.second)}, "
        f"{told}.{rest}"
    )


def _lacking(found: Results, question: Question) -> str:
    skipped = {run.workload for run in found.suite.skipped}
    for side in (question.first, question.second):
        if side.workload in skipped:
            return f"{words.name_of(side.workload)} was skipped on this machine"
    per = f" and its {question.per}" if question.per else ""
    return f"no block has the system's energy{per} of both sides"


def _side(side: Side) -> str:
    name = words.name_of(side.workload)
    if side.phase == "all":
        return name
    return f"the tail of {name}" if side.phase == TAIL else f"{name}, {parse(side.phase).shown}"


def _per(question: Question) -> str:
    return f" per {UNITS[question.per].one}" if question.per in UNITS else ""


def _table(found: Results, question: Question, answers: Sequence[Answer]) -> Blocks:
    per = UNITS.get(question.per)
    size = per.size if per else 1.0
    columns: Fields[Answer] = {
        "Configuration": lambda one: found.suite.label(one.configuration),
        "First": lambda one: _scaled(one.first, size),
        "Second": lambda one: _scaled(one.second, size),
        "First against second [95 %]": lambda one: words.change_in(one.comparison),
        "n": lambda one: _of(one, lambda c: str(c.n), "0"),
        "Verdict": lambda one: _of(one, words.verdict_of, words.verdict("inconclusive", None)),
    }
    unit = f"J/{per.one}" if per else "J"
    caption = f"First: {_side(question.first)}; second: {_side(question.second)} ({unit})"
    return view.table_of(caption, answers, columns, origin=found.origin)


def _scaled(value: Estimate | None, size: float) -> str:
    return words.plus_minus(value.scaled(size) if value else None)
