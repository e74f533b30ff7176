"""How long requests of fio waited, by configuration, beside their joules."""

from __future__ import annotations

from itertools import groupby

from analysis.report import view, words
from analysis.report.figures import latency
from analysis.report.texts import say
from analysis.report.view import Blocks
from analysis.stats import responsiveness
from analysis.stats.responsiveness import NAMES, Delay
from analysis.stats.results import Results


def responsiveness_section(results: Results) -> Blocks:
    """Return the whole section; nothing where no run kept a report of fio's."""
    suite = results.suite
    delays = responsiveness.delays(suite)
    if not delays:
        return ()
    component = results.family.component
    rows = list(responsiveness.overall(suite, results.energy, component))
    changes = [
        [suite.label(row.configuration), name, words.change_in(ratio)]
        for row in rows
        for name, ratio in (*row.latency.items(), (say("responsiveness.energy"), row.joules))
    ]
    caption = say("responsiveness.overall", base=suite.base_label or "the baseline")
    page = view.paragraph(say("responsiveness.verdict"))
    heads = ["Configuration", "Quantity", "Change [95 % interval]"]
    page += view.table(caption, heads, changes, words=2, origin=results.origin, group=True)
    drawn = latency.draw(suite, rows, component, results.origin)
    page += view.picture(drawn, say("responsiveness.picture"), results.origin)
    for workload, of_workload in groupby(delays, lambda delay: delay.work[0]):
        page += view.folded(
            f"{words.name_of(workload)}: every phase", _phases(results, list(of_workload))
        )
    return page + view.paragraph(say("responsiveness.key"), "key")


def _phases(results: Results, delays: list[Delay]) -> Blocks:
    """One workload's phases: of each percentile the median and its change."""
    rows = []
    for (work, name), same in groupby(delays, lambda delay: (delay.work, delay.configuration)):
        row = [words.parse(work[1]).shown, results.suite.label(name)]
        by_name = {delay.percentile: delay for delay in same}
        for percentile in NAMES:
            delay = by_name.get(percentile)
            row += (
                ["", ""]
                if delay is None
                else [words.number(delay.median_ms), words.change_in(delay.ratio)]
            )
        rows.append(row)
    heads = [text for name in NAMES for text in (f"{name} (ms)", f"{name}, change")]
    caption = say("responsiveness.phases", workload=words.name_of(delays[0].work[0]))
    heads = ["Phase", "Configuration", *heads]
    return view.table(caption, heads, rows, words=2, origin=results.origin, group=True)
