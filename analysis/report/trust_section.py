"""Trust in the figures: the box on the first screen, the section, and the uncertainty budget."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import polars as pl

from analysis.energy import run_checks
from analysis.energy.watermarks import AGREES, CANNOT_TELL, DISAGREES
from analysis.flags import meaning
from analysis.money import budgets
from analysis.report import disks_section, provenance, view, words
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks
from analysis.report.words import count
from analysis.stats.budget import SCATTER
from analysis.stats.results import Results, measured_phases
from analysis.suite import readers
from analysis.suite.records import Meter
from instrumentation.accuracy import NOT_STATED

MOST_LINES = 5  # of the box on the first screen


def limits_box(results: Results) -> Blocks:
    """Return the limits of the figures for the first screen, by the first sentences of Trust."""
    texts = (*results.reservations, *results.suite.problems)
    limits = [f"{text.partition('. ')[0].rstrip('.')}." for text in texts]
    if missing := provenance.missing_sentence(results.suite):
        limits.insert(0, f"Not measured: {missing}.")
    if len(limits) > MOST_LINES:
        limits = [*limits[: MOST_LINES - 1], " ".join(limits[MOST_LINES - 1 :])]
    return view.note(say("section.trust"), view.bullets(limits), "warning") if limits else ()


def _share(value: float) -> str:
    """Return a share in per cent, not rounded up to 100 %."""
    return "100 %" if value >= 1 else f"{min(value, 0.9999) * 100:.2f} %"


MOST_APART = 0.05  # of the runs that two meters of one channel saw: intervals are of 95 %


def trust_section(results: Results) -> Blocks:
    """Return agreement of sources and clocks, coverage, flags, checks, work and void runs."""
    suite = results.suite
    heads = ["What", "Held against", "Found", "Verdict"]
    page = view.bullets([*results.reservations, *suite.problems])
    rows = list(cross_checks(results))
    page += view.table("Cross-checks, and whether they agree", heads, rows, words=4)
    proof = f"{len(suite.runs)} runs finished; {run_checks.proof(suite, results.origin)}."
    seal = "holds" if suite.seal_holds else "broken"
    sealed = say(f"trust.seal.{seal if suite.sealed else 'none'}")
    page += view.bullets([proof, sealed, *map(_accuracy, suite.meters)])
    page += provenance.left_out(results)
    ours = max(run_checks.own_shares(suite), key=lambda phase: phase.share, default=None)
    if ours is not None:
        page += view.paragraph(
            f"Our own share of the busy CPU time was {ours.share * 100:.2f} % at most, in "
            f"{words.name_of(ours.workload)}, {ours.phase} (target: {run_checks.LIMIT:.0%})."
        )
    page += view.bullets(provenance.interruption_lines(results.incidents))
    page += disks_section.disk_table(results)
    page += _coverage(results)
    flags = [[flag, meaning(flag), str(n)] for flag, n in run_checks.flagged(results.energy)]
    page += view.table("Flags on phases", ["Flag", "Meaning", "Rows"], flags, words=2)
    failed = [[name, message, str(n)] for name, message, n in run_checks.warnings(suite)]
    caption = "Checks that were not passed in finished runs"
    page += view.table(caption, ["Check", "Message", "Runs"], failed, words=2)
    page += _work(results)
    void = [[v.run_id, v.reason] for v in suite.void]
    page += view.table("Void runs: they count for nothing", ["Run", "Reason"], void, words=2)
    return page if suite.void else page + view.paragraph("No run is void.")


def cross_checks(results: Results) -> Iterator[list[str]]:
    """Yield rows of the cross-checks: subject, other source, finding and verdict."""
    suite = results.suite
    for agreement in readers.agreements(suite):
        yield ["RAPL, our reader", agreement.reader, *readers_row(agreement)]
    clock = _clock(results)
    if not results.watermarks:
        why = "the suite played no load watermark" if suite.meters else "there is no meter"
        yield ["Target's clock by round trips", "load watermark", f"{clock}; {why}", ""]
    for mark in results.watermarks:
        channel = f", {words.name_of(mark.component)}" if mark.component else ""
        against = f"load watermark {mark.number} as {mark.source} saw it{channel}"
        finding = f"{clock}; load pattern: {mark.sentence.replace(' -', ' −')}"
        yield ["Target's clock by round trips", against, finding, mark.verdict]
    for pair in run_checks.two_meters(suite, results.all_energy):
        reference = f"{pair.reference}, {pair.channel}: the reference"
        if pair.ratio is None:
            yield [reference, pair.other, "no run has both", CANNOT_TELL]
            continue
        finding = f"{words.percent(pair.ratio)} over {count(pair.runs, 'run')}"
        finding += f"; in {pair.apart} of them beyond what both intervals allow"
        verdict = DISAGREES if pair.apart > MOST_APART * pair.runs else AGREES
        yield [reference, pair.other, finding, verdict]
    yield from _whole_rows(run_checks.against_parts(results.energy))


def readers_row(agreement: readers.Agreement) -> tuple[str, str]:
    """Return the finding on another reader of the same counters, and the verdict."""
    omitted = f"; {agreement.wrapped} more wrapped or unread" * bool(agreement.wrapped)
    if agreement.failed:
        omitted += f"; {agreement.failed} times no figure: {' '.join(agreement.reasons)}"
    if agreement.compared == 0 or agreement.worst_uj is None:
        return f"nothing to compare{omitted}", CANNOT_TELL
    apart = f"{words.rounded(agreement.worst_uj / 1e6)} J"
    if agreement.worst_share is not None:
        apart += f" ({words.rounded(agreement.worst_share * 100)} %)"
    text = f"at most {apart} apart over {agreement.compared} figures of whole runs"
    if agreement.apart_ms is not None:
        text += f"; read at most {words.rounded(agreement.apart_ms)} ms apart"
        if agreement.unexplained:
            text += f", which explains all but {agreement.unexplained}: look for a second cause"
        else:
            text += ", which explains it"
    return text + omitted, DISAGREES if agreement.unexplained else AGREES


def _clock(results: Results) -> str:
    """Return the worst clock bound over all edges of measured phases."""
    suite, clock = results.suite, results.clock
    edges = [
        (run.boot_id, t)
        for run in suite.runs
        for phase in run.measured_phases
        for t in (phase.t_start_ns, phase.t_end_ns)
    ]
    bounds = [bound for edge in edges if (bound := clock.bound_ns(*edge)) is not None]
    if not bounds:
        return "no usable clock reading: phases cannot be placed on the meter's time"
    skew_ppm = max(abs(model.skew_ppm) for model in clock.models.values())
    without = sum(run.boot_id not in clock.models for run in suite.runs)
    missing = f"; {without} runs have none" if without else ""
    return (
        f"known to within {words.rounded(max(bounds) / 1e6)} ms at every edge of a phase "
        f"({len(suite.clock)} round trips, {count(len(clock.models), 'boot')}, "
        f"skew {words.rounded(skew_ppm)} ppm){missing}"
    )


def _whole_rows(compared: run_checks.WholeAgainstParts) -> Iterator[list[str]]:
    """Yield the row on whether RAPL's parts exceed the whole system of the meter."""
    if not compared.runs or compared.worst_ratio is None:
        return
    parts = "CPU package and RAM (RAPL)" if compared.memory else "CPU package (RAPL; no DRAM zone)"
    sources = [parts, "whole system (meter)"]
    worst = words.rounded(compared.worst_ratio * 100)
    if not compared.exceeding:
        yield [*sources, f"never more than {worst} % of it, in {compared.runs} runs", AGREES]
        return
    why = say(f"trust.whole.{'modelled' if compared.modelled else 'measured'}")
    text = f"more in {compared.exceeding} of {compared.runs} runs, {worst} % of it at worst: {why}"
    yield [*sources, text, DISAGREES]


def _work(results: Results) -> Blocks:
    """Return the folded account of each phase's work; the kernel's counts once a phase."""
    before: tuple[str, ...] = ()
    rows = []
    for work in results.works:
        key = work.workload, work.phase, work.configuration
        traffic = (work.disk_read_bytes, work.disk_written_bytes, work.disk_discarded_bytes)
        amounts = (work.planned, work.reported, work.counted)
        again = key == before
        labels = words.name_of(work.workload), work.phase, results.suite.label(work.configuration)
        cells = [work.unit, *map(_amount, amounts), *([""] * 3 if again else map(_amount, traffic))]
        rows.append([*labels, *cells, "" if again else ", ".join(work.codes)])
        before = key
    heads = ["Workload", "Phase", "Configuration", "Unit", "Planned", "Reported", "Counted"]
    heads += ["Disk read (B)", "Disk written (B)", "Discarded (B)", "Differs"]
    inside = view.table(say("trust.work"), heads, rows, words=4, group=True)
    inside += view.key("trust.work") if rows else ()
    return view.folded(say("trust.work.title"), inside)


def _amount(value: float | None) -> str:
    return words.NOTHING if value is None else words.number(value, 0 if value % 1 == 0 else 2)


def _coverage(results: Results) -> Blocks:
    rows = []
    for meter in results.suite.meters:
        for channel in meter.channels:
            phases = measured_phases(results.energy).filter(source=meter.name, component=channel)
            share = phases["coverage"].to_list()
            gaps = phases.filter(pl.col("coverage") < 1)["run_id"].n_unique()
            shares = map(_share, (fmean(share), min(share))) if share else [words.NOTHING] * 2
            rows.append([meter.name, words.name_of(channel), str(len(phases)), *shares, str(gaps)])
    heads = ["Meter", "Channel", "Phases", "Mean coverage", "Worst", "Runs with gaps"]
    return view.table("The meter's coverage of the measured phases", heads, rows, words=2)


def _accuracy(meter: Meter) -> str:
    """Return the stated accuracy of a meter, and how it is used."""
    stated = [f"{named(t.name)} ±{limit_of(t.limit, t.unit)}" for t in meter.terms if t.limit]
    unknown = [named(t.name) for t in meter.terms if t.limit is None]
    if not stated:
        return f"The accuracy of meter {meter.name} is not known: its joules have no type B figure."
    lacking = f"; not stated: {', '.join(unknown)}" * bool(unknown)
    terms = f"Meter {meter.name} ({meter.kind}): {', '.join(stated)}{lacking}."
    return f"{terms} {say('trust.accuracy')}"


def budget_section(results: Results) -> Blocks:
    """Return the budget's key, its terms with their sources, and figures that lack a term."""
    budgeted = [*budgets.joules(results), *budgets.overall(results)]
    stated = dict.fromkeys(
        (row.term, row.stated) for figure in budgeted for row in figure.budget.rows if row.stated
    )
    if not budgeted:
        return ()
    page = view.key("budget")
    lacking = dict.fromkeys(
        (figure.source, term)
        for figure in budgeted
        for term in figure.budget.missing
        if term != SCATTER
    )
    page += view.bullets(
        f"Incomplete: no limit is stated for the {named(term)} of {source}, so that its figures "
        "are less certain by an unknown amount."
        for source, term in lacking
    )
    rows = [[named(term), source] for term, source in stated]
    return page + view.table(
        "Who states the instrument's terms", ["Term", "Stated by"], rows, words=2
    )


def named(name: str) -> str:
    """Return the name of a term of error for people."""
    return catalogue().tables["terms_of_error"].get(name, name)


def limit_of(value: float | None, unit: str) -> str:
    """Return a limit in its term's unit, a share in per cent."""
    if value is None:
        return NOT_STATED
    return f"{words.rounded(value * 100)} %" if unit == "1" else f"{words.rounded(value)} {unit}"
