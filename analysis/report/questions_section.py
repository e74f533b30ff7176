"""The questions that were declared before the first run, each with its answer below it."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.report import markup, words
from analysis.report.answer import judgement
from analysis.report.markup import Html
from analysis.report.phase_names import parse
from analysis.stats.comparisons import Answer, Question, Side, questions
from analysis.stats.per_unit import UNITS
from analysis.stats.results import Results
from analysis.stats.stats import Estimate
from analysis.suite.records import TAIL

HEADERS = ("Configuration", "First", "Second", "First against second [95 %]", "n", "Verdict")


def questions_section(found: Results) -> Html:
    """A heading, and each question with a sentence and its table; nothing where none was asked."""
    asked = questions(found.suite)
    if not asked:
        return markup.EMPTY
    page = markup.heading("The questions of this suite", 2, "questions")
    page += markup.paragraph(
        "Declared before the first run. The system's joules of one part of the suite against "
        "another on the same configuration, paired within blocks; all of them are one family "
        "(Holm).",
        "key",
    )
    for question in asked:
        answers = [a for a in found.answers if a.question == question]
        page += markup.heading(question.question, 3, f"question-{question.name}")
        page += markup.paragraph(sentence(found, question, answers), "answer")
        table = _table(found, question, answers)
        page += markup.folded("Its figures", table) if table.text else markup.EMPTY
    return page


def sentences(found: Results) -> list[str]:
    """Each question with its answer, for a terminal."""
    return [
        f"{question.question} {sentence(found, question, of)}"
        for question in questions(found.suite)
        for of in ([a for a in found.answers if a.question == question],)
    ]


def sentence(found: Results, question: Question, answers: Sequence[Answer]) -> str:
    """The answer in words: configurations of one verdict together."""
    if question.fault:
        return f"This cannot be answered. {question.fault}"
    there = [(a, a.comparison) for a in answers if a.comparison is not None]
    if not there:
        return f"This cannot be answered: {_lacking(found, question)}."
    by: dict[str, list[str]] = {}
    for answer, c in there:
        change = words.change_of(c.ratio, c.low, c.high)
        by.setdefault(judgement(c), []).append(
            f"{change} with {found.suite.label(answer.configuration)}"
        )
    told = "; ".join(
        f"{', '.join(texts)}: {_many(verdict, texts)}" for verdict, texts in by.items()
    )
    missing = len(answers) - len(there)
    rest = f" Of {missing} more configurations no block has both sides." if missing else ""
    first = _side(question.first)
    return (
        f"{first[0].upper()}{first[1:]} takes{_per(question)}, against {_side(question.second)}, "
        f"{told}.{rest}"
    )


def _many(verdict: str, texts: Sequence[str]) -> str:
    return verdict.replace("it differs", "they differ") if len(texts) > 1 else verdict


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


def _table(found: Results, question: Question, answers: Sequence[Answer]) -> Html:
    unit = f"J/{UNITS[question.per].one}" if question.per in UNITS else "J"
    size = UNITS[question.per].size if question.per in UNITS else 1.0
    rows = []
    for answer in answers:
        c = answer.comparison
        rows.append(
            [
                found.suite.label(answer.configuration),
                _scaled(answer.first, size),
                _scaled(answer.second, size),
                words.NOTHING if c is None else words.change_of(c.ratio, c.low, c.high),
                "0" if c is None else str(c.n),
                "inconclusive" if c is None else words.verdict(c.verdict, c.ratio, c.both),
            ]
        )
    caption = f"First: {_side(question.first)}; second: {_side(question.second)} ({unit})"
    return markup.table(caption, HEADERS, rows, origin=found.origin)


def _scaled(value: Estimate | None, size: float) -> str:
    return words.plus_minus(value.scaled(size) if value else None)
