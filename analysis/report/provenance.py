"""Provenance, interruptions of the suite, and parts that were left out or skipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from analysis.energy import run_checks
from analysis.report import view, words
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks, Fields
from analysis.report.words import count
from analysis.stats import disks as specimens
from analysis.stats.results import Results
from analysis.suite.incidents import IncidentLog
from analysis.suite.records import Suite


def interruption_lines(incidents: IncidentLog) -> Iterator[str]:
    """Yield lines on the suite's course: interruptions, void tries by reason, failure, waits."""
    yield sentence(incidents) or "No interruptions."
    if incidents.voids:
        reasons = [f"{group.tries}× {group.reason.rstrip('.')}" for group in incidents.voids]
        yield f"Void tries: {'; '.join(reasons)}"
    if incidents.failed:
        yield f"The suite failed: {incidents.failed}"
    if incidents.waits:
        waits = [f"{w.name} {duration(w.seconds)} ({times(w.times)})" for w in incidents.waits]
        yield f"Waited for: {', '.join(waits)}"


def sentence(incidents: IncidentLog) -> str:
    """Return the interruptions in one sentence; empty if there were none."""
    parts = [*interruptions(incidents), *_times(incidents.tries_void, "try", "void", "tries")]
    if not parts:
        return ""
    return f"Interruptions: {', '.join(parts)}; {count(incidents.repeated, 'repetition')}."


def interruptions(incidents: IncidentLog) -> Iterator[str]:
    """Yield external interruptions, a few words each."""
    yield from _times(incidents.reboots, "reboot", "of the target")
    yield from _times(incidents.restarts, "restart", "of the agent")
    yield from _times(incidents.resumed, "start", "after its end")
    yield from _times(incidents.controller_boots - 1, "reboot", "of the controller")
    yield from _times(incidents.controller_sleeps, "suspension", "of the controller")
    yield from _times(incidents.killed, "session", "of the controller killed")
    yield from _times(incidents.interrupted, "try", "cut short", "tries")
    for silence in incidents.silences:
        often = f", {times(silence.times)}" if silence.times > 1 else ""
        yield f"{silence.name} silent for {duration(silence.seconds)}{often}"
    for silence in incidents.unlinked:
        yield f"no link to the target for {duration(silence.seconds)}"


def duration(seconds: float) -> str:
    """Return `7.4 s`, `74 s`, `12 min` or `3.4 h`."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _times(number: int, noun: str, things: str, plural: str = "") -> Iterator[str]:
    if number > 0:
        yield f"{number} {noun if number == 1 else plural or noun + 's'} {things}"


def times(number: int) -> str:
    """Return `once` or `3 times`."""
    return "once" if number == 1 else f"{number} times"


def provenance_section(results: Results) -> Blocks:
    """Return the tables of plan, machine and disks."""
    suite, facts = results.suite, [list(fact) for fact in plan_and_machine(results).items()]
    if shares := run_checks.stolen_shares(results.energy):
        mean, most = (
            words.number(100 * share, 1) for share in (fmean(shares.values()), max(shares.values()))
        )
        facts.append(["CPU time that the host kept from it", f"{mean} %, of one run {most} %"])
    # The processor's AES instructions change the cost of encryption.
    layers = (layer for run in suite.runs for layer in run.proof.layers)
    if drivers := sorted({d for layer in layers if "aes" in (d := layer.cipher_driver or "")}):
        facts.append([say("provenance.drivers"), ", ".join(drivers)])
    page: Blocks = ()
    if (share := suite.timing.controller_share) is not None:
        page += view.paragraph(say("provenance.time", share=f"{words.number(share * 100, 1)} %"))
    page += view.table("Plan and machine", ["What", "Value"], facts, words=2)
    if disks := specimens.table(suite):
        heads, *differing = disks
        caption = "Other differences between the disks"
        page += view.table(caption, heads, differing, words=3)
    return page + view.key("provenance")


def plan_and_machine(results: Results) -> dict[str, str]:
    """Return the facts of the plan and the machine by their labels."""
    suite, tables = results.suite, catalogue().tables
    facts = {label: str(getattr(suite.plan, key)) for key, label in tables["plan"].items()}
    return facts | {
        label: words.LAB_MACHINES.get(suite.machine[key], suite.machine[key])
        for key, label in tables["machine"].items()
        if key in suite.machine
    }


ALL_OF_IT = "all of it"


@dataclass(frozen=True)
class Missing:
    """A part of an entry, or all of it, that `runs` runs lack, and the reason."""

    workload: str
    configurations: tuple[str, ...]
    what: str
    reason: str
    runs: int

    @property
    def skipped(self) -> bool:
        return self.what == ALL_OF_IT


def missing(suite: Suite) -> list[Missing]:
    """Return missing parts, grouped by reason; skipped runs first."""
    configurations: dict[tuple[str, str, str], list[str]] = {}
    for skipped in suite.skipped:
        key = skipped.workload, ALL_OF_IT, skipped.reason
        configurations.setdefault(key, []).append(skipped.configuration)
    for run in suite.runs:
        for part in run.left_out:
            key = run.workload, part.what, part.reason
            configurations.setdefault(key, []).append(run.configuration)
    return [
        Missing(workload, tuple(dict.fromkeys(where)), what, reason, len(where))
        for (workload, what, reason), where in configurations.items()
    ]


def missing_sentence(suite: Suite) -> str:
    """Return the skipped workloads and the number of missing parts in a line, or nothing."""
    parts_missing = missing(suite)
    skipped = dict.fromkeys(words.name_of(part.workload) for part in parts_missing if part.skipped)
    parts = len({(part.workload, part.what) for part in parts_missing if not part.skipped})
    clauses = [f"skipped: {', '.join(skipped)}"] * bool(skipped)
    partly = dict.fromkeys(
        words.name_of(part.workload) for part in parts_missing if not part.skipped
    )
    clauses += [f"left out: {words.count(parts, 'part')} of {', '.join(partly)}"] * bool(parts)
    return "; ".join(clauses)


def left_out(results: Results) -> Blocks:
    """Return the table of missing parts and reasons, if any is missing."""
    columns: Fields[Missing] = {
        "Workload": lambda part: words.name_of(part.workload),
        "What": lambda part: part.what,
        "Reason": lambda part: part.reason,
        "Configurations": lambda part: ", ".join(map(results.suite.label, part.configurations)),
        "Runs": lambda part: str(part.runs),
    }
    caption = "Left out or skipped, so without figures"
    return view.table_of(caption, missing(results.suite), columns, words=4, group=True)
