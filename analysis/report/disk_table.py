"""The disk's own condition under each configuration, as a table; what it keeps to itself, said."""

from __future__ import annotations

from analysis.report import markup, words
from analysis.report.markup import Html
from analysis.stats.disk_condition import WHEN, Condition, limit_k, too_warm
from analysis.stats.results import Results

SILENT = "not reported"
COUNTS = (("throttled", 1.0), ("written_bytes", 1e9), ("errors", 1.0))  # and the unit shown


def disk_table(found: Results) -> Html:
    """By configuration: temperatures, what was counted during its runs, and the disk's settings."""
    if not found.disks:
        return markup.paragraph("The runs do not tell the condition of their disks.")
    limit = limit_k(found.suite)
    base = found.suite.label(found.suite.baseline or "")
    within = "" if limit is None else f", flagged beyond ±{limit:g} K"
    page = markup.table(
        "The disk under each configuration, by its own account before and after the finished runs",
        [
            "Configuration",
            "Disk",
            *(f"°C {when} (lowest to highest)" for when in WHEN),
            f"Warmer than under {base}, before; after (K{within})",
            "Throttled in runs",
            "Written in runs (GB)",
            "Media errors in runs",
            "Link and queue",
            "Write cache",
            "Spare, first; last (%)",
            "Life used, first; last (%)",
        ],
        [_row(found, one, limit) for one in found.disks],
        words=2,
        origin=found.origin,
        group=True,
    )
    cold = [found.suite.label(c.configuration) for c in found.disks if not c.temperature_c]
    if cold:
        page += markup.paragraph(
            f"No temperature is reported by the disk under {', '.join(cold)}: whether it stayed as "
            "warm as at first was not checked.",
            "key",
        )
    return page


def _row(found: Results, one: Condition, limit: float | None) -> list[str]:
    flag = "flagged: " if too_warm(one, limit) else ""
    warmer = [f"{k:+.1f}".replace("-", "−") for k in one.warmer_k.values()]
    of_base = one.configuration == found.suite.baseline
    counts = {
        key: words.rounded(one.counted[key] / unit) for key, unit in COUNTS if key in one.counted
    }
    return [
        found.suite.label(one.configuration),
        one.disk,
        *(words.span(t) if (t := one.temperature_c.get(when)) else SILENT for when in WHEN),
        words.NOTHING if of_base else flag + "; ".join(warmer) if warmer else SILENT,
        *(counts.get(key, SILENT) for key, _ in COUNTS),
        *(", then ".join(one.settings.get(key, (SILENT,))) for key in ("link", "write_cache")),
        *(
            "; ".join(map(words.given, one.life[key])) if key in one.life else SILENT
            for key in ("spare_percent", "used_percent")
        ),
    ]
