"""Provenance, what interrupted the suite, and where the time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import fmean

from analysis.energy import run_checks
from analysis.report import view, words
from analysis.report.texts import catalogue
from analysis.report.view import Blocks
from analysis.report.words import count
from analysis.stats import disks as specimens
from analysis.stats.results import Results
from analysis.suite.incidents import IncidentLog

QUIET = (
    "No interruptions: one start, one boot, every run finished at its first try, nothing was "
    "waited for, and no meter fell silent."
)
SHOWN = 3  # runs that are named one by one


def incident_table(incidents: IncidentLog) -> Blocks:
    """How the suite went, only what happened."""
    if incidents.quiet:
        return view.paragraph(QUIET)
    heads = ["What", "How often", "What more"]
    return view.table("Interruptions, and what came of them", heads, [*_rows(incidents)], words=3)


def sentence(incidents: IncidentLog) -> str:
    """Return the same in one line; empty where nothing happened."""
    parts = [*interruptions(incidents), *_times(incidents.tries_void, "try", "void", "tries")]
    if not parts:
        return ""
    repeated = incidents.at_once + incidents.later
    return f"Interruptions: {', '.join(parts)}; {count(repeated, 'repetition')}."


def interruptions(incidents: IncidentLog) -> Iterator[str]:
    """Yield what came from outside, a few words each."""
    yield from _times(incidents.reboots, "reboot", "of the target")
    yield from _times(incidents.restarts, "restart", "of the agent")
    yield from _times(incidents.resumed, "start", "after its end")
    yield from _times(incidents.controller_boots - 1, "reboot", "of the controller")
    yield from _times(incidents.controller_sleeps, "suspension", "of the controller")
    yield from _times(len(incidents.interruptions), "try", "cut short", "tries")
    for silence in incidents.silences:
        often = f", {times(silence.times)}" if silence.times > 1 else ""
        yield f"{silence.meter} silent for {duration(silence.seconds)}{often}"
    if incidents.unlinked:
        yield f"no link to the target for {duration(incidents.unlinked.seconds)}"


def duration(seconds: float) -> str:
    """`7.4 s`, `74 s`, `12 min`, `3.4 h`."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _times(number: int, noun: str, things: str, plural: str = "") -> Iterator[str]:
    if number > 0:
        yield f"{number} {noun if number == 1 else plural or noun + 's'} {things}"


def _rows(incidents: IncidentLog) -> Iterator[list[str]]:
    boots = {
        "The target lost power or was started again": incidents.reboots,
        "The agent was started again in the same boot": incidents.restarts,
        "The suite was started again after it had ended": incidents.resumed,
        "The controller was started again": incidents.controller_boots - 1,
        "The controller was suspended, and recorded no meter": incidents.controller_sleeps,
        "A session of the controller was killed": incidents.killed,
        "A session of the controller continued with the suite": incidents.sessions - 1,
    }
    for what, number in boots.items():
        if number > 0:
            yield [what, times(number), ""]
    yield from _cut_short(incidents)
    for group in incidents.voids:
        what = "Repeated because a run was not whole" if group.asked else "Void try"
        fixed = f"{group.recovered} of {count(group.runs, 'run')} finished in the end"
        yield [f"{what}: {group.reason.rstrip('.')}", times(group.tries), fixed]
    if incidents.at_once or incidents.later:
        kinds = {"at once in their place": incidents.at_once, "after other runs": incidents.later}
        more = ", ".join(f"{number} {how}" for how, number in kinds.items() if number)
        yield ["Repetitions", times(incidents.at_once + incidents.later), more]
    for wait in incidents.waits:
        why = catalogue().tables["waited"].get(wait.cause, f"({wait.cause})")
        more = "" if wait.cause == "secrets" else f": {wait.sentence}"  # its words are for the log
        yield [f"Waited {why}", times(wait.times), f"{duration(wait.seconds)}{more}"]
    for silence in filter(None, (*incidents.silences, incidents.unlinked)):
        more = f"{duration(silence.seconds)} in all, {duration(silence.longest_s)} at most"
        what = f"Meter {silence.meter} fell silent or was opened again"
        if not silence.meter:
            what = "No link to the target: it, the network or the controller's session was away"
        yield [what, times(silence.times), more]
    if void := incidents.void_to_end:
        more = f" and {len(void) - SHOWN} more" if len(void) > SHOWN else ""
        yield ["Void to the end", count(len(void), "run"), f"{', '.join(void[:SHOWN])}{more}"]
    if incidents.never:
        yield ["Never made", count(incidents.never, "run"), ""]
    if not incidents.ended:
        yield ["The suite did not come to its end", "", incidents.failed]


def _cut_short(incidents: IncidentLog) -> Iterator[list[str]]:
    by_cause: dict[str, list[str]] = {}
    for interruption in incidents.interruptions:
        by_cause.setdefault(interruption.cause, []).append(interruption.during)
    for cause, during in by_cause.items():
        states = Counter(state for state in during if state)
        doing = ", ".join(f"{n} while {state}" for state, n in states.most_common())
        yield [catalogue().tables["cut_short"][cause], times(len(during)), doing]


def times(number: int) -> str:
    """`once`, `3 times`."""
    return "once" if number == 1 else f"{number} times"


def provenance_section(results: Results) -> Blocks:
    """Plan, machine, packages, changes during the suite, time."""
    facts = [list(fact) for fact in plan_and_machine(results).items()]
    if shares := run_checks.stolen_shares(results.energy):
        mean, most = (words.number(100 * share, 1) for share in (fmean(shares), max(shares)))
        facts.append(["CPU time that the host kept from it", f"{mean} %, of one run {most} %"])
    page = _time(results.suite.timing)
    page += view.table("Plan and machine", ["What", "Value"], facts, words=2)
    if disks := specimens.table(results.suite):
        heads, *differing = disks
        caption = "What the disks differ in besides their encryption"
        page += view.table(caption, heads, differing, words=3)
    return page + view.paragraph(
        "The whole plan is in plan.json, the machine before and after in the folder provenance.",
        "key",
    )


def plan_and_machine(results: Results) -> dict[str, str]:
    """Return by their labels what the plan and the machine are."""
    suite, tables = results.suite, catalogue().tables
    facts = {label: str(getattr(suite.plan, key)) for key, label in tables["plan"].items()}
    return facts | {
        label: words.LAB_MACHINES.get(suite.machine[key], suite.machine[key])
        for key, label in tables["machine"].items()
        if key in suite.machine
    }


def _time(timing: Mapping[str, float]) -> Blocks:
    wall_s = timing.get("wall_s", 0.0)
    rows = [
        [
            label,
            words.number(timing[key], 0),
            f"{timing[key] / wall_s * 100:.0f} %" if wall_s > 0 else "",
        ]
        for key, label in catalogue().tables["times"].items()
        if key in timing
    ]
    page = view.table("Where the time went", ["Step", "Seconds", "Share"], rows)
    cpu_s, within_s = timing.get("controller_cpu_s"), timing.get("controller_cpu_wall_s")
    if not cpu_s or not within_s:
        return page
    return page + view.paragraph(
        "The controller ran on the target itself: it and its recorders kept "
        f"{words.number(cpu_s / within_s * 100, 1)} % of one processor busy, which is part of the "
        "joules."
    )
