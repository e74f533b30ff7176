"""The questions declared before the first run, their answers, and the tests behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from analysis.flags import DOUBTS
from analysis.report import answer, view, words
from analysis.report.texts import say
from analysis.report.view import Blocks, Fields
from analysis.report.words import parse
from analysis.stats.comparison import Comparison
from analysis.stats.contrasts import Answer, Contrast, faults
from analysis.stats.results import Results
from analysis.stats.summary import UNITS
from analysis.suite.records import TAIL
from contract.plan import DeclaredComparison, Side

MOST_DOUBTED = 4  # comparisons named with a doubt


def contrasts_section(results: Results) -> Blocks:
    """Return the contrasts of the family, over all workloads and in each."""
    compared = results.contrasts
    if not compared:
        return view.paragraph("The plan has no two configurations to compare.")
    columns: Fields[Contrast] = {
        "Contrast": lambda contrast: _pair(results, contrast.base, contrast.other),
        "Energy [interval]": lambda contrast: words.change_in(contrast.comparison),
        "Time [interval]": lambda contrast: words.change_in(contrast.time),
        "Power [interval]": lambda contrast: words.change_in(contrast.power),
        "n": lambda contrast: _text_of(contrast, lambda c: str(c.n), "0"),
        "Verdict": lambda contrast: _text_of(
            contrast,
            lambda c: answer.verdict_on_disks(
                results.suite, contrast.base, contrast.other, words.verdict_of(c)
            ),
            "inconclusive",
        ),
    }
    caption = say("contrasts.caption", over=answer.overall_name(results.suite))
    page = view.table_of(caption, compared, columns, words=1)
    return page + view.folded(say("contrasts.by-workload"), _by_workload(results))


def contrasts_notes(results: Results) -> Blocks:
    """Return what the contrasts mean, and doubts."""
    return view.bullets([*_overall(results), *doubts(results)]) if results.contrasts else ()


def _overall(results: Results) -> Iterator[str]:
    """Yield the scope of the verdicts, and the meaning of the overall figure."""
    yield say("contrasts.verdicts", tested=str(results.family.tested))
    suite = results.suite
    names = [words.name_of(name) for name in suite.workloads if not suite.counts_overall(name)]
    aside = say("contrasts.aside", workloads=words.listed(names)) if names else ""
    yield say("contrasts.overall", over=answer.overall_name(suite)) + aside


def doubts(results: Results) -> Iterator[str]:
    """Yield a sentence for each doubt, with the comparisons that it concerns."""
    cells: dict[str, dict[str, None]] = {}
    for contrast in results.contrasts:
        for code in contrast.comparison.doubts if contrast.comparison else ():
            name = f"{_pair(results, contrast.base, contrast.other)} over all"
            cells.setdefault(code, {})[name] = None
    for (workload, name, _, component), c in results.family.versus.items():
        if component == results.family.component:
            for code in c.doubts:
                label = f"{results.suite.label(name)} in {words.name_of(workload)}"
                cells.setdefault(code, {})[label] = None
    for code, names in cells.items():
        shown = list(names)[:MOST_DOUBTED]
        unnamed = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        yield f"{', '.join(shown)}{unnamed}: {DOUBTS[code]}"


def _by_workload(results: Results) -> Blocks:
    """Return declared contrasts of two encryptions by workload, extra blocks included."""
    rows = [
        (contrast, workload, c)
        for contrast in results.contrasts
        if contrast.declared and results.suite.baseline not in (contrast.base, contrast.other)
        for workload, c in contrast.by_workload.items()
    ]
    columns: Fields[tuple[Contrast, str, Comparison]] = {
        "Contrast": lambda row: _pair(results, row[0].base, row[0].other),
        "Workload": lambda row: words.name_of(row[1]),
        "Change [95 % interval]": lambda row: words.change_in(row[2]),
        "n": lambda row: str(row[2].n),
    }
    caption = say("contrasts.by-workload.caption")
    return view.table_of(caption, rows, columns, words=2, group=True)


def _pair(results: Results, base: str, other: str) -> str:
    return f"{results.suite.label(other)} against {results.suite.label(base)}"


def _text_of(
    compared: Contrast | Answer, text: Callable[[Comparison], str], without: str = words.NOTHING
) -> str:
    return without if compared.comparison is None else text(compared.comparison)


def questions_section(results: Results) -> Blocks:
    """Return a heading and a sentence for each declared question."""
    questions = results.suite.plan.analysis.comparisons
    page = view.key("questions") if questions else ()
    for question in questions:
        heading = question.question or question.name
        page += view.heading(heading, 3, f"question-{question.name}")
        page += view.paragraph(sentence(results, question), "answer")
    return page


def sentences(results: Results) -> list[str]:
    """Return each question with its answer, for a terminal."""
    questions = results.suite.plan.analysis.comparisons
    return [f"{q.question or q.name} {sentence(results, q)}" for q in questions]


def sentence(results: Results, question: DeclaredComparison) -> str:
    """Return the answer in words, grouped by verdict."""
    if fault := " ".join(faults(results.suite, question)):
        return f"This cannot be answered. {fault}"
    answers = [reply for reply in results.answers if reply.question.name == question.name]
    compared = [(a, a.comparison) for a in answers if a.comparison is not None]
    if not compared:
        return f"This cannot be answered: {_lacking(results, question)}."
    label = results.suite.label
    by: dict[str, list[str]] = {}
    for reply, c in compared:
        change = f"{words.change_in(c)} with {label(reply.configuration)}"
        by.setdefault(words.verdict_of(c), []).append(change)
    verdicts = "; ".join(f"{', '.join(same)}: {verdict}" for verdict, same in by.items())
    missing = len(answers) - len(compared)
    lacking = f" Of {missing} more configurations no block has both sides." if missing else ""
    first = _side(question.first)
    unit = UNITS.get(answers[0].question.per or "")
    per = f" per {unit.singular}" if unit else ""
    return (
        f"{first[0].upper()}{first[1:]} takes{per}, against {_side(question.second)}, "
        f"{verdicts}.{lacking}"
    )


def _lacking(results: Results, question: DeclaredComparison) -> str:
    skipped = {run.workload for run in results.suite.skipped}
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
