"""How long requests of fio waited, by configuration."""

from __future__ import annotations

from itertools import groupby

from analysis.report import view, words
from analysis.report.texts import say
from analysis.report.view import Blocks
from analysis.stats.responsiveness import NAMES, delays
from analysis.stats.results import Results


def responsiveness_section(results: Results) -> Blocks:
    """Return the table of percentiles; nothing where no run kept a report of fio's."""
    rows = []
    for (work, name), same in groupby(
        delays(results.suite), lambda delay: (delay.work, delay.configuration)
    ):
        by_name = {delay.percentile: delay for delay in same}
        row = [words.name_of(work[0]), words.parse(work[1]).shown, results.suite.label(name)]
        for percentile in NAMES:
            delay = by_name.get(percentile)
            row += (
                ["", ""]
                if delay is None
                else [words.number(delay.median_ms), words.change_in(delay.ratio)]
            )
        rows.append(row)
    if not rows:
        return ()
    heads = [text for name in NAMES for text in (f"{name} (ms)", f"{name}, change")]
    heads = ["Workload", "Phase", "Configuration", *heads]
    caption = say("responsiveness.caption")
    page = view.table(caption, heads, rows, words=3, origin=results.origin, group=True)
    return page + view.key("responsiveness")
