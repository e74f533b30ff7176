"""What was left out or skipped, and our own share of the CPU time."""

from __future__ import annotations

from analysis.energy.own_share import LIMIT, OwnShare, own_shares
from analysis.report import markup, words
from analysis.report.left_out import missing
from analysis.report.markup import Html
from analysis.stats.results import Results


def left_out(found: Results) -> Html:
    """A row a part and reason; a sentence where nothing is missing."""
    rows = [
        [
            words.name_of(one.workload),
            one.what,
            one.reason,
            ", ".join(found.suite.label(name) for name in one.configurations),
            str(one.runs),
        ]
        for one in missing(found.suite)
    ]
    if not rows:
        return markup.paragraph("Nothing that was planned was left out or skipped.")
    return markup.table(
        "Left out or skipped, and why: nothing is said about these",
        ["Workload", "What", "Reason", "Configurations", "Runs"],
        rows,
        words=4,
        group=True,
    )


def own_share(found: Results) -> Html:
    """A row an entry: our share of the CPU seconds, the worst phase and the mean."""
    shares = own_shares(found.suite)
    if not shares:
        return markup.paragraph("No run says how much CPU time was ours.")
    page = markup.table(
        f"Our own share of the busy CPU time (the target of the suite paper: ≤ {LIMIT:.0%})",
        ["Workload", "Done by", "Worst phase", "Worst", "Mean of phases", "Within the target"],
        [_row(one) for one in shares],
        words=3,
    )
    return page + markup.paragraph(
        "The agent's CPU seconds in a phase over those of all programs, all runs together; of a "
        "phase that keeps no processor busy, over its time.",
        "key",
    )


def _row(one: OwnShare) -> list[str]:
    phase, share, at_rest = one.worst
    return [
        words.name_of(one.workload),
        one.program or words.NOTHING,
        f"{phase}, of its time" if at_rest else phase,
        f"{share * 100:.2f} %",
        f"{one.mean * 100:.2f} %",
        "ok" if one.ok else "over",
    ]
