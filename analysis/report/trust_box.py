"""How far to trust it, short: what stands beside the answer on the first screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.energy import trust
from analysis.energy.watermarks import AGREES, DISAGREES
from analysis.report import left_out, markup, night_table, words
from analysis.report.answer import count
from analysis.report.markup import Html
from analysis.report.steadiness_section import canary_sentence
from analysis.stats import planning
from analysis.stats.canary import Canary
from analysis.stats.results import Results
from analysis.stats.steadiness import Steadiness

TITLE = "How far to trust it"


def trust_box(
    found: Results,
    twice: Sequence[Sequence[str]],
    steady: Sequence[Steadiness],
    canary: Canary | None,
) -> Html:
    """One line each; then what this suite cannot say."""
    lines = [_blocks(found), *_sources(found, twice), canary_sentence(found, canary)]
    lines.append(night_table.sentence(found.night))
    stray = sum(len(s.outliers) for s in steady)
    if stray:
        lines.append(f"{count(stray, 'run')} flagged as standing out; they count like all others.")
    lines.append(_power(found))
    page = markup.note(TITLE, markup.bullets(line for line in lines if line), "plain")
    left = left_out.sentence(found.suite)
    if left:
        said = f"{left[0].upper()}{left[1:]}. The reasons stand below, at Trust."
        page += markup.note("Not measured: ", markup.paragraph(said), "warning")
    if found.doubts:
        page += markup.note("What weakens these figures", markup.bullets(found.doubts), "warning")
    if found.suite.problems:
        page += markup.note(
            "What this suite cannot say", markup.bullets(found.suite.problems), "warning"
        )
    return page


def _blocks(found: Results) -> str:
    suite = found.suite
    blocks = len({run.block for run in suite.compared_runs})
    planned = suite.planned_blocks or blocks
    of = "" if planned == blocks else f" of {planned}"
    void = f"{count(len(suite.void), 'run')} void" if suite.void else "none void"
    sealed = "" if suite.sealed else " The files are not sealed."
    return (
        f"{blocks}{of} block{'s' * (blocks != 1)}, {count(len(suite.runs), 'finished run')}, {void}"
        f"; {trust.proof(suite, found.origin)}.{sealed}"
    )


def _sources(found: Results, twice: Sequence[Sequence[str]]) -> Iterator[str]:
    for meter in trust.meters(found.suite, found.energy):
        if meter.component != "system" or meter.mean_coverage is None:
            continue
        mean, worst = meter.mean_coverage, meter.worst_coverage or 0.0
        yield (
            f"The meter saw {_share(mean)} of the measured time, {_share(worst)} of the worst "
            f"phase; {count(len(meter.gaps), 'run')} with gaps."
        )
    verdicts = [row[-1] for row in twice if row[-1]]
    if verdicts:
        agree, against = verdicts.count(AGREES), verdicts.count(DISAGREES)
        rest = len(verdicts) - agree - against
        parts = [f"{agree} agree"]
        who = "; ".join(f"{row[0]} with {row[1]}" for row in twice if row[-1] == DISAGREES)
        parts += [f"{against} disagree ({who})"] * bool(against)
        parts += [f"{rest} cannot tell"] * bool(rest)
        yield f"Of {count(len(verdicts), 'thing')} known in two ways {', '.join(parts)}."


def _share(value: float) -> str:
    """Never rounded up to all."""
    return "100 %" if value >= 1 else f"{min(value, 0.9999) * 100:.2f} %"


def _power(found: Results) -> str:
    """What would have been missed, and what more blocks would give."""
    c = [c.comparison for c in found.contrasts if c.declared and c.comparison]
    c = c or [c.comparison for c in found.contrasts if c.comparison]
    smallest = [planning.detectable(one.sd_log, one.n) for one in c]
    known = [s for s in smallest if s is not None]
    said = str(found.next_suite["sentence"])
    if not known:
        return said
    text = f"A change below {words.percent(max(known)).lstrip('+')} over all workloads could have"
    return f"{text} been missed (found four times in five from there on). {said}"
