"""What other sources on the target read: a battery, sensors, a graphics processor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from statistics import fmean

from analysis.report import view, words
from analysis.report.texts import catalogue
from analysis.report.view import Blocks
from analysis.stats.results import Results
from analysis.stats.stats import estimate
from analysis.suite.readers import of_other_zones
from analysis.suite.records import Run, joint

HEADERS = ["Source", "What", "Workload", "Configuration", "Energy (J)", "Mean power (W)", "n"]


def section(results: Results) -> Blocks:
    """One table of their joules, and what they see; nothing where there is none of them."""
    runs = results.suite.compared_runs
    names = dict.fromkeys(name for run in runs for name in run.other_sources)
    sources = [name for name in names if of_other_zones(name, runs)]
    if not sources:
        return ()
    rows = [row for source in sources for row in _rows(results, source)]
    what = "Other sources on the target: energy of whole runs, from the settled state to the tail"
    origin = joint(run.origin for run in runs)
    page = view.table(what, HEADERS, rows, words=4, origin=origin, group=True)
    failed = [f"{name}: {why}" for name in sources if (why := _failed(runs, name))]
    failed += [why for name in sources if (why := _still(runs, name))]
    notes = [catalogue().tables["sources"].get(name, "") for name in sources]
    notes += ["No verdict rests on them: they are whole runs, and in no sum."]
    return page + view.paragraph(" ".join(filter(None, [*notes, *failed])), "key")


def _rows(results: Results, source: str) -> Iterator[list[str]]:
    runs = [run for run in results.suite.compared_runs if source in run.other_sources]
    zones = dict.fromkeys(zone.zone for run in runs for zone in run.zones_of(source))
    moved = [zone for zone in zones if any(_joules(run, source, zone) for run in runs)]
    for zone, *cell in product(moved, results.suite.workloads, results.suite.configurations):
        figures = [
            (run, joules)
            for run in runs
            if [run.workload, run.configuration] == cell
            and (joules := _joules(run, source, zone)) is not None
        ]
        if not figures:
            continue
        blocks: dict[int, list[float]] = {}
        for run, joules in figures:
            blocks.setdefault(run.block, []).append(joules)
        records = [run.other_sources[source] for run, _ in figures]
        seconds = [max((r.t_end_ns or 0) - (r.t_start_ns or 0), 1) / 1e9 for r in records]
        power_w = [joules / s for (_, joules), s in zip(figures, seconds, strict=True)]
        yield [
            source,
            zone,
            words.name_of(cell[0]),
            results.suite.label(cell[1]),
            words.plus_minus(estimate([fmean(values) for values in blocks.values()])),
            words.number(fmean(power_w)),
            str(len(blocks)),
        ]


def _joules(run: Run, source: str, name: str) -> float | None:
    """None where the source gave no figure, or had a gap."""
    zones = (zone for zone in run.zones_of(source) if zone.zone == name)
    return next((z.energy_uj / 1e6 for z in zones if z.energy_uj is not None), None)


def _still(runs: Sequence[Run], source: str) -> str:
    """Return what counted nothing in any run."""
    known: dict[str, float] = {}
    for run in runs:
        for zone in run.zones_of(source):
            if zone.energy_uj is not None:
                known[zone.zone] = known.get(zone.zone, 0.0) + zone.energy_uj
    still = [zone for zone, joules in known.items() if not joules]
    return f"{source}: {', '.join(still)} stood still in all runs: no joules." if still else ""


def _failed(runs: Sequence[Run], source: str) -> str:
    """In how many runs it gave no figure, and the first reason."""
    reasons = [
        record.error or "a reading failed"
        for run in runs
        if (record := run.other_sources.get(source)) is not None
        and (record.error or any(zone.energy_uj is None for zone in run.zones_of(source)))
    ]
    return f"no figure in {len(reasons)} runs ({reasons[0].rstrip('.')})." if reasons else ""
