"""Trust in the figures: remarks on the first screen, cross-checks, and the meters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import fmean

from analysis.energy import run_checks
from analysis.energy.watermarks import AGREES, CANNOT_TELL, DISAGREES
from analysis.flags import reserves
from analysis.report import disks_section, provenance, view, words
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks, Remark
from analysis.report.words import count
from analysis.stats.results import Results, measured_phases
from analysis.suite import readers
from analysis.suite.records import Meter

ALIKE = re.compile(r"\d+-b\d+-[\w-]+|[\d.,\u202f]+")  # names of runs, and figures


def remarks(results: Results) -> tuple[Remark, ...]:
    """Return the remarks that limit the figures, worst first; equal ones are merged.

    A remark is the first sentence; what follows it, and the others like it, can be unfolded.
    """
    suite = results.suite
    texts = [*suite.problems, *_disagreements(results), *_stolen(results), *results.reservations]
    if missing := provenance.missing_sentence(suite):
        texts.append(f"Not measured: {missing}.")
    labels = sorted(map(suite.label, suite.configurations), key=len, reverse=True)
    names = re.compile("|".join([*map(re.escape, labels), ALIKE.pattern]))
    alike: dict[str, list[str]] = {}
    for text in texts:
        alike.setdefault(names.sub("", text), []).append(text)
    return tuple(_remark(same) for same in alike.values())


def _remark(alike: Sequence[str]) -> Remark:
    first, _, rest = alike[0].partition(". ")
    number = f" ({len(alike) - 1} more like it)" if len(alike) > 1 else ""
    return Remark(f"{first.rstrip('.')}{number}.", tuple(filter(None, [rest, *alike[1:]])))


def _disagreements(results: Results) -> Iterator[str]:
    for what, against, finding, verdict in cross_checks(results):
        if verdict == DISAGREES:
            yield f"{what} and {against} disagree. {finding[0].upper()}{finding[1:]}."


def _stolen(results: Results) -> Iterator[str]:
    """Yield a sentence if the host of a virtual machine took much of a run's processor time."""
    runs = {run.run_id: run for run in results.suite.runs}
    shares = run_checks.stolen_shares(results.energy)
    disturbed = {run_id: share for run_id, share in shares.items() if share > STOLEN_LIMIT}
    if disturbed:
        worst = max(disturbed, key=lambda run_id: disturbed[run_id])
        yield say(
            "trust.stolen",
            runs=count(len(disturbed), "run"),
            limit=f"{100 * STOLEN_LIMIT:g} %",
            share=f"{100 * disturbed[worst]:.0f} %",
            workload=words.name_of(runs[worst].workload),
            configuration=results.suite.label(runs[worst].configuration),
            block=str(runs[worst].block + 1),
        )


STOLEN_LIMIT = 0.1  # of a run's processor time


def _share(value: float) -> str:
    """Return a share in per cent, not rounded up to 100 %."""
    return "100 %" if value >= 1 else f"{min(value, 0.9999) * 100:.2f} %"


MOST_APART = 0.05  # of the runs that two meters of one channel saw: intervals are of 95 %


def trust_section(results: Results) -> Blocks:
    """Return agreement of sources and clocks, the suite's course, parts left out, and void runs."""
    suite = results.suite
    heads = ["What", "Compared with", "Finding", "Verdict"]
    page = view.table(say("trust.checks"), heads, list(cross_checks(results)), words=4)
    seal = "holds" if suite.seal_holds else "broken"
    course = [f"{len(suite.runs)} runs finished; {run_checks.proof(suite, results.origin)}."]
    course += [say(f"trust.seal.{seal if suite.sealed else 'none'}")]
    course += provenance.interruption_lines(results.incidents)
    page += view.bullets(course) + provenance.left_out(results)
    void = [[v.run_id, v.reason] for v in suite.void]
    return page + view.table(say("trust.void"), ["Run", "Reason"], void, words=2)


def meters_section(results: Results) -> Blocks:
    """Return accuracy and coverage of the meters, flags, failed checks and disks."""
    page = view.bullets(
        _accuracy(meter) + _coverage(results, meter) for meter in results.suite.meters
    )
    page += view.bullets(note.sentence for note in results.flags if not reserves(note.code))
    failed = [[name, message, str(n)] for name, message, n in run_checks.warnings(results.suite)]
    page += view.table(say("trust.failed"), ["Check", "Message", "Runs"], failed, words=2)
    testbed = max(run_checks.own_shares(results.suite), key=lambda phase: phase.share, default=None)
    if testbed is not None:
        share, limit = f"{testbed.share * 100:.2f} %", f"{run_checks.LIMIT:.0%}"
        workload = words.name_of(testbed.workload)
        text = say("trust.own", share=share, workload=workload, phase=testbed.phase, limit=limit)
        page += view.paragraph(text)
    return page + disks_section.disk_table(results)


def cross_checks(results: Results) -> Iterator[list[str]]:
    """Yield rows of the cross-checks: subject, other source, finding and verdict."""
    suite = results.suite
    for agreement in readers.agreements(suite):
        yield ["RAPL, our reader", agreement.reader, *readers_row(agreement)]
    clock = _clock(results)
    if not results.watermarks:
        why = "the suite has no load watermark" if suite.meters else "there is no meter"
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
    if shares := run_checks.shares_of_parts(results.energy):
        memory = "CPU package and RAM (RAPL)", "CPU package (RAPL; no DRAM zone)"
        parts = memory["dram" not in set(results.energy["component"])]
        exceeding = sum(share > 1 for share in shares)
        finding = f"at most {words.rounded(max(shares) * 100)} % of it, in {len(shares)} runs"
        finding += f"; more than the whole in {exceeding} of them" * bool(exceeding)
        yield [parts, "whole system (meter)", finding, DISAGREES if exceeding else AGREES]


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
            text += f", which explains all but {agreement.unexplained}, so look for a second cause"
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
        return "no usable clock reading, so phases cannot be placed on the meter's time"
    skew_ppm = max(abs(model.skew_ppm) for model in clock.models.values())
    without = sum(run.boot_id not in clock.models for run in suite.runs)
    missing = f"; {without} runs have none" if without else ""
    return (
        f"known to within {words.rounded(max(bounds) / 1e6)} ms at every edge of a phase "
        f"({len(suite.clock)} round trips, {count(len(clock.models), 'boot')}, "
        f"skew {words.rounded(skew_ppm)} ppm){missing}"
    )


def _coverage(results: Results, meter: Meter) -> str:
    shares = measured_phases(results.energy).filter(source=meter.name)["coverage"].to_list()
    if not shares:
        return ""
    return f" It covers {_share(fmean(shares))} of the phases, at worst {_share(min(shares))}."


def _accuracy(meter: Meter) -> str:
    """Return the stated accuracy of a meter, and how it is used."""
    names = catalogue().tables["terms_of_error"]
    limits = {names.get(t.name, t.name): t for t in meter.terms}
    stated = [
        f"{name} ±{words.rounded(t.limit * 100)} %"
        if t.unit == "1"
        else f"{name} ±{words.rounded(t.limit)} {t.unit}"
        for name, t in limits.items()
        if t.limit
    ]
    if not stated:
        return f"The accuracy of meter {meter.name} is unknown: its joules have no type B figure."
    unknown = [name for name, t in limits.items() if t.limit is None]
    lacking = f"; not stated: {', '.join(unknown)}" * bool(unknown)
    terms = f"Meter {meter.name} ({meter.kind}): {', '.join(stated)}{lacking}."
    return f"{terms} {say('trust.accuracy')}"
