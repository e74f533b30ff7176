"""How far to trust the figures: in short beside the answer, and in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.energy import cross_checks, own_share, run_checks
from analysis.energy.watermarks import AGREES, CANNOT_TELL, DISAGREES
from analysis.flags import meaning
from analysis.report import answer, disks_section, missing_section, provenance, view, words
from analysis.report.budget_section import limit_of, named
from analysis.report.steadiness_section import drift_check_sentence
from analysis.report.texts import say
from analysis.report.view import Blocks, Fields
from analysis.report.words import count
from analysis.stats.drift_check import DriftCheck
from analysis.stats.results import Results
from analysis.suite import readers
from analysis.suite.records import Meter, Suite

TITLE = "How far to trust it"


MOST_LINES = 5


def trust_box(
    results: Results, twice: Sequence[Sequence[str]], drift_check: DriftCheck | None
) -> Blocks:
    """Five lines at most: what was measured, how it agrees, and what limits it."""
    steady = [*_agreement(twice), drift_check_sentence(results.suite, drift_check)]
    lines = [measured_sentence(results), " ".join(steady)]
    left = missing_section.sentence(results.suite)
    limits = [f"Not measured: {left}."] * bool(left)
    # Their first sentences; the whole texts stand at Trust.
    texts = (*results.reservations, *results.suite.problems)
    limits += [f"{text.partition('. ')[0].rstrip('.')}." for text in texts]
    room = MOST_LINES - len(lines)
    if len(limits) > room:
        limits = [*limits[: room - 1], " ".join(limits[room - 1 :])]
    kind = "warning" if limits else "plain"
    return view.note(TITLE, view.bullets([*limits, *lines]), kind)


def measured_sentence(results: Results) -> str:
    """Return how many blocks and runs there are, what the meter saw, and what interrupted them."""
    suite = results.suite
    blocks = len({run.block for run in suite.compared_runs})
    planned = suite.planned_blocks or blocks
    of_planned = "" if planned == blocks else f" of {planned}"
    sealed = "" if suite.sealed else " The files are not sealed."
    text = (
        f"{blocks}{of_planned} block{'s' * (blocks != 1)}, "
        f"{count(len(suite.runs), 'finished run')}, {answer.void(suite)}; "
        f"{run_checks.proof(suite, results.origin)}.{sealed}"
    )
    return " ".join(
        [text, *_measured_time(results), provenance.sentence(results.incidents)]
    ).strip()


def _measured_time(results: Results) -> Iterator[str]:
    for meter in run_checks.meters(results.suite, results.energy):
        if meter.component == "system" and meter.mean_coverage is not None:
            yield (
                f"The meter saw {_part(meter.mean_coverage)} of the measured time, "
                f"{_part(meter.worst_coverage)} of the worst phase."
            )


def _agreement(twice: Sequence[Sequence[str]]) -> Iterator[str]:
    verdicts = [row[-1] for row in twice if row[-1]]
    if verdicts:
        agree = verdicts.count(AGREES)
        against = [f"{row[0]} with {row[1]}" for row in twice if row[-1] == DISAGREES]
        rest = len(verdicts) - agree - len(against)
        parts = [f"{agree} agree"]
        parts += [f"{len(against)} disagree ({'; '.join(against)})"] * bool(against)
        parts += [f"{rest} cannot tell"] * bool(rest)
        yield f"Cross-checks: {', '.join(parts)}."


def _part(value: float | None) -> str:
    """Never rounded up to all."""
    if value is None:
        return words.NOTHING
    return "100 %" if value >= 1 else f"{min(value, 0.9999) * 100:.2f} %"


MOST_APART = 0.05  # of the runs that two meters of one channel saw: intervals are of 95 %


def trust_section(results: Results, known_twice: Sequence[Sequence[str]]) -> Blocks:
    """Agreement of sources and clocks, uncertainty, coverage, flags, checks, void runs."""
    suite = results.suite
    heads = ["What", "Held against", "Found", "Verdict"]
    page = view.bullets([*results.reservations, *suite.problems])
    page += view.table("Cross-checks, and whether they agree", heads, known_twice, words=4)
    proof = f"{len(suite.runs)} runs finished; {run_checks.proof(suite, results.origin)}."
    seal = "holds" if suite.seal_holds else "broken"
    sealed = say(f"trust.seal.{seal if suite.sealed else 'none'}")
    page += view.bullets([proof, sealed, *map(_accuracy, suite.meters)])
    page += missing_section.left_out(results)
    page += view.bullets(_own_share(suite))
    page += view.bullets(provenance.interruption_lines(results.incidents))
    page += disks_section.disk_table(results)
    page += _coverage(results)
    flags = [[flag, meaning(flag), str(n)] for flag, n in run_checks.flagged(results.energy)]
    page += view.table("Flags on phases", ["Flag", "Meaning", "Rows"], flags, words=2)
    failed = [[name, message, str(n)] for name, message, n in run_checks.warnings(suite)]
    what = "Checks that were not passed in finished runs"
    page += view.table(what, ["Check", "Message", "Runs"], failed, words=2)
    page += _work(results)
    void = [[v.run_id, v.reason] for v in suite.void]
    page += view.table("Void runs: they count for nothing", ["Run", "Reason"], void, words=2)
    return page if suite.void else page + view.paragraph("No run is void.")


def twice(results: Results) -> Iterator[list[str]]:
    """Cross-checks: what, compared with, found, and agrees, disagrees or cannot tell."""
    suite = results.suite
    for agreement in readers.agreements(suite):
        yield ["RAPL, our reader", agreement.reader, *readers_row(agreement)]
    clock = cross_checks.clock(suite, results.clock)
    if not results.watermarks:
        why = "the suite played no load watermark" if suite.meters else "there is no meter"
        yield ["Target's clock by round trips", "load watermark", f"{_clock(clock)}; {why}", ""]
    for mark in results.watermarks:
        channel = f", {words.name_of(mark.component)}" if mark.component else ""
        against = f"load watermark {mark.number} as {mark.source} saw it{channel}"
        finding = f"{_clock(clock)}; load pattern: {mark.sentence.replace(' -', ' −')}"
        yield ["Target's clock by round trips", against, finding, mark.verdict]
    for pair in cross_checks.two_meters(suite, results.all_energy):
        reference = f"{pair.reference}, {pair.channel}: the reference"
        if pair.ratio is None:
            yield [reference, pair.other, "no run has both", CANNOT_TELL]
            continue
        finding = f"{words.percent(pair.ratio)} over {count(pair.runs, 'run')}"
        finding += f"; in {pair.apart} of them beyond what both intervals allow"
        verdict = DISAGREES if pair.apart > MOST_APART * pair.runs else AGREES
        yield [reference, pair.other, finding, verdict]
    yield from _whole_rows(cross_checks.against_parts(results.energy))


def readers_row(agreement: readers.Agreement) -> tuple[str, str]:
    """Return what was found of another reader of the same counters, and the verdict."""
    more = f"; {agreement.wrapped} more wrapped or unread" * bool(agreement.wrapped)
    if agreement.failed:
        more += f"; {agreement.failed} times no figure: {' '.join(agreement.reasons)}"
    if agreement.compared == 0 or agreement.worst_uj is None:
        return f"nothing to compare{more}", CANNOT_TELL
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
    return text + more, DISAGREES if agreement.unexplained else AGREES


def _clock(clock: cross_checks.ClockTrust) -> str:
    if clock.bound_ms is None:
        return "no usable clock reading: phases cannot be placed on the meter's time"
    missing = f"; {clock.runs_without} runs have none" if clock.runs_without else ""
    return (
        f"known to within {words.rounded(clock.bound_ms)} ms at every edge of a phase "
        f"({clock.readings} round trips, {count(clock.boots, 'boot')}, "
        f"skew {words.rounded(clock.skew_ppm)} ppm){missing}"
    )


def _whole_rows(compared: cross_checks.WholeAgainstParts) -> Iterator[list[str]]:
    """Two sources that cannot both be right, or a row that they can."""
    if not compared.runs or compared.worst_ratio is None:
        return
    parts = "CPU package and RAM (RAPL)" if compared.memory else "CPU package (RAPL; no DRAM zone)"
    what = [parts, "whole system (meter)"]
    worst = words.rounded(compared.worst_ratio * 100)
    if not compared.exceeding:
        yield [*what, f"never more than {worst} % of it, in {compared.runs} runs", AGREES]
        return
    why = say(f"trust.whole.{'modelled' if compared.modelled else 'measured'}")
    text = f"more in {compared.exceeding} of {compared.runs} runs, {worst} % of it at worst: {why}"
    yield [*what, text, DISAGREES]


def _work(results: Results) -> Blocks:
    """Return the account of each phase's work, closed; the kernel's counts once a phase."""
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
    columns: Fields[run_checks.MeterTrust] = {
        "Meter": lambda m: m.source,
        "Channel": lambda m: words.name_of(m.component),
        "Phases": lambda m: str(m.phases),
        "Mean coverage": lambda m: _part(m.mean_coverage),
        "Worst": lambda m: _part(m.worst_coverage),
        "Runs with gaps": lambda m: str(len(m.gaps)),
    }
    rows = run_checks.meters(results.suite, results.energy)
    return view.table_of("The meter's coverage of the measured phases", rows, columns, words=2)


def _own_share(suite: Suite) -> Iterator[str]:
    """How much of the CPU time was ours, where most of it was."""
    worst = max(own_share.own_shares(suite), key=lambda phase: phase.share, default=None)
    if worst is not None:
        yield (
            f"Our own share of the busy CPU time was {worst.share * 100:.2f} % at most, in "
            f"{words.name_of(worst.workload)}, {worst.phase} (target: {own_share.LIMIT:.0%})."
        )


def _accuracy(meter: Meter) -> str:
    """Return what is stated of a meter, and where it counts."""
    stated = [f"{named(t.name)} ±{limit_of(t.limit, t.unit)}" for t in meter.terms if t.limit]
    unknown = [named(t.name) for t in meter.terms if t.limit is None]
    if not stated:
        return f"The accuracy of meter {meter.name} is not known: its joules have no type B figure."
    lacking = f"; not stated: {', '.join(unknown)}" * bool(unknown)
    terms = f"Meter {meter.name} ({meter.kind}): {', '.join(stated)}{lacking}."
    return f"{terms} {say('trust.accuracy')}"
