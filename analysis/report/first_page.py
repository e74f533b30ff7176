"""The first page's lines, on the terminal too: cost, what costs most, payback, trust, next step.

Each answers a reader's question in a sentence with the verdict first. The catalogue has its words
by its code; this module decides on codes, figures and their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.energy.watermarks import AGREES, DISAGREES
from analysis.money.costs import battery_hours
from analysis.report import answer, mechanism, trust_section, view, words
from analysis.report.answer import Fact, contrast_of, is_narrow, line
from analysis.report.payback_text import money_line
from analysis.report.provenance import duration
from analysis.report.texts import say
from analysis.report.trust_section import cross_checks
from analysis.report.view import Blocks, Remark
from analysis.report.words import count, listed
from analysis.stats import comparison, disks
from analysis.stats.comparison import LEAST_EQUIVALENT, Comparison
from analysis.stats.contrasts import Contrast, counted, scatter_shares
from analysis.stats.drift_check import MOVED
from analysis.stats.results import Results
from analysis.stats.summary import compared_component
from analysis.suite.incidents import IncidentLog
from analysis.suite.records import SYNTHETIC, SYSTEM, Suite
from contract.command_results import AnswerLine, AnswerTo
from contract.estimates import ends
from contract.names import safe
from contract.places import command_line
from contract.plan import HERE, scale_of

LINES = 4  # configurations with a line each; more share one
NAMED = 3  # configurations named in a line; of more, only their number
RUN_AGAIN = ("no-runs", "no-pairs")


def lines(results: Results, folder: Path) -> tuple[AnswerLine, ...]:
    """Return the answers in their order; commands name the suite by `folder`."""
    # Every configuration that encrypts; if none does, all but the baseline.
    suite = results.suite
    bare = [name for name in suite.configurations if suite.reference(name) == name]
    others = [name for name in suite.configurations if name not in (*bare, suite.baseline)]
    compared = [
        _compare_with_base(results, name) for name in others or bare if name != suite.baseline
    ]
    return (
        *_costs(results, compared),
        _most(results),
        money_line(results),
        *_battery(results),
        _trusted(results),
        _next(results, compared, folder),
    )


ASKED: tuple[AnswerTo, ...] = ("trust", "next")  # in a question of its own on the page


def origin_note(origin: str) -> Blocks:
    """Return a terminal's first line on figures that are not measured; nothing for others."""
    mark = answer.mark(origin)
    return view.paragraph(f"{mark[0].upper()}{mark[1:]}.") if mark else ()


def blocks(
    answers: Sequence[AnswerLine], remarks: Sequence[Remark] = (), label: str = "label"
) -> Blocks:
    """Return the lines as blocks, with a label for each question and remarks after trust."""
    shown: Blocks = ()
    before = ""
    for reply in answers:
        name = say(f"answer.{reply.question}.{label}") if reply.question != before else ""
        shown += view.answer(reply, name)
        if reply.question == "trust" and remarks:
            shown += (view.Remarks(tuple(remarks)),)
        before = reply.question
    return shown


@dataclass(frozen=True)
class _Compared:
    """A configuration against the disk without encryption; `why` is the lack of a comparison."""

    name: str
    label: str
    base: str
    other_disk: bool
    scope: str
    contrast: Contrast | None
    why: tuple[str, str]

    @property
    def comparison(self) -> Comparison | None:
        return self.contrast.comparison if self.contrast else None

    @property
    def code(self) -> str:
        c = self.comparison
        if c is None or c.verdict in ("inconclusive", "incomplete"):
            return "unknown" if c is None else OPEN[c.verdict]
        if self.other_disk or c.verdict == "equivalent":
            return "two-disks" if self.other_disk else "equivalent"
        return "more" if c.ratio > 1 else "less"

    @property
    def facts(self) -> dict[str, Fact]:
        c = self.comparison
        if c is None or self.contrast is None:
            return {"configuration": self.name, "ratio": None}
        parts = {"time": self.contrast.time, "power": self.contrast.power}
        return {
            "configuration": self.name,
            **{"ratio": c.ratio, "low": c.low, "high": c.high, "verdict": c.verdict},
            "blocks": c.n,
            **{name: list(ends(part.estimate)) for name, part in parts.items() if part},
        }


OPEN = {"inconclusive": "unsettled", "incomplete": "incomplete"}
CODES = ("more", "less", "equivalent", "two-disks", *OPEN.values(), "unknown")


def _compare_with_base(results: Results, name: str) -> _Compared:
    suite = results.suite
    base = suite.reference(name) if suite.reference(name) != name else suite.baseline
    contrast = contrast_of(results, base, name)
    c = contrast.comparison if contrast else None
    other_disk = disks.across(suite, base, name)
    label = suite.label(base or "")
    scope = ""
    if contrast is not None and c is not None:
        planned = sum({(w, base), (w, name)} <= suite.planned for w in counted(suite))
        if len(contrast.workloads) < planned:
            scope = f"; {len(contrast.workloads)} of {planned} workloads"
        component = compared_component(suite, results.energy["component"])
        if component != SYSTEM:
            scope += say("answer.cost.part", part=words.name_of(component))
    return _Compared(
        name,
        suite.label(name),
        say("answer.other-disk", base=label) if other_disk else say("answer.no-encryption"),
        other_disk,
        scope,
        contrast,
        _lacking(results, base, name) if c is None else ("", ""),
    )


def _lacking(results: Results, base: str | None, name: str) -> tuple[str, str]:
    """Return why a configuration has no comparison: as a code, and in words."""
    suite = results.suite
    if not suite.compared_runs:
        return "no-runs", "no run finished"
    if base is None:
        return "no-baseline", "the plan has no configuration without encryption"
    components = set(results.summary["component"])
    if compared_component(suite, components) not in components:
        rapl = ", and RAPL does not count disks" * bool({"package", "package-0"} & components)
        return "no-meter", f"no meter saw the whole system{rapl}"
    measured = {run.configuration for run in suite.compared_runs}
    missing = [side for side in (base, name) if side not in measured]
    if missing:
        skipped = {run.configuration for run in suite.skipped}.issuperset(missing)
        labels = " or ".join(map(suite.label, missing))
        return "skipped" if skipped else "no-pairs", f"no run of {labels} finished"
    return "no-pairs", "no block has a workload on both sides"


def _costs(results: Results, compared: Sequence[_Compared]) -> Iterator[AnswerLine]:
    """Yield the costs of the configurations, settled ones first; many share a line."""
    suite = results.suite
    if not compared:
        only = ", ".join(map(suite.label, suite.configurations))
        yield line("cost", "nothing-compared", way="" if only else "none", name=only)
        return
    open_ = (*OPEN.values(), "unknown")
    settled = sorted((o for o in compared if o.code not in open_), key=lambda o: o.other_disk)
    many = len(compared) > LINES
    if many and settled:
        yield _together(compared)
        return
    for cost in settled:
        yield _cost_line(cost, cost.code)
    if incomplete := [cost for cost in compared if cost.code == "incomplete"]:
        changes = [f"{o.label} {words.change_in(o.comparison)}" for o in incomplete[:LINES]]
        changes += [f"{len(incomplete) - LINES} more below"] if len(incomplete) > LINES else []
        yield line(
            "cost",
            "incomplete",
            {"configurations": [cost.name for cost in incomplete]},
            blocks=suite.blocks_done,
            changes="; ".join(changes),
        )
    unsettled = _unsettled(compared)
    named = [(cost, c) for cost, c in unsettled if not many and is_narrow(c.low, c.high)]
    for cost, _ in named:
        yield _cost_line(cost, "unsettled", "near")
    wide = [pair for pair in unsettled if pair not in named]
    if wide:
        least = min(c.n for _, c in wide)
        yield line(
            "cost",
            "unsettled",
            {"configurations": [cost.name for cost, _ in wide], "blocks": least},
            "single" if least < 2 else "few" if least < LEAST_EQUIVALENT else "wide",
            names=_names([cost for cost, _ in wide]),
            blocks=count(least, "block"),
        )
    for why in dict.fromkeys(cost.why for cost in compared if cost.comparison is None):
        lacking = [cost for cost in compared if cost.why == why]
        facts = {"configurations": [cost.name for cost in lacking], "why": why[0]}
        yield line("cost", "unknown", facts, names=_names(lacking), why=why[1])


def _names(several: Sequence[_Compared]) -> str:
    if len(several) > NAMED:
        return f"{len(several)} configurations"
    return listed([cost.label for cost in several])


def _unsettled(compared: Sequence[_Compared]) -> list[tuple[_Compared, Comparison]]:
    return [(cost, c) for cost in compared if (c := cost.comparison) and cost.code == "unsettled"]


def _cost_line(cost: _Compared, code: str, way: str = "") -> AnswerLine:
    """Return the line of one configuration, with figure and interval."""
    c = cost.comparison
    assert c is not None and c.low is not None and c.high is not None
    margin = f"{c.margin * 100:g} %"
    unseen = words.unseen(c.n)
    return line(
        "cost",
        code,
        {**cost.facts, "configurations": [cost.name]} if way else cost.facts,
        way,
        name=cost.label,
        base=cost.base,
        distance=words.change_only(c)[1:],
        change=words.change_only(c),
        margin=margin,
        interval=words.interval_of(c.low, c.high),
        rest=cost.scope,
        unseen=f"{unseen[0].upper()}{unseen[1:]}",
        mechanism=f" {mechanism.sentence(cost.contrast)}".rstrip() if cost.contrast else "",
    )


def _together(compared: Sequence[_Compared]) -> AnswerLine:
    """Return the line of many configurations: the increases from least to most, and others."""
    pairs = [(c, cost.label) for cost in compared if (c := cost.comparison) and cost.code == "more"]
    dearer = sorted(pairs, key=lambda pair: pair[0].ratio)
    counts = {code: sum(cost.code == code for cost in compared) for code in CODES}
    margins = [f"{c.margin * 100:g} %" for cost in compared if (c := cost.comparison)]
    others = [
        f"{number} {say(f'answer.cost.several.{code}', margin=margins[0])}"
        for code, number in counts.items()
        if number and code != "more"
    ]
    ends = [f"{words.change_only(c, 1)} ({label})" for c, label in dearer]
    return line(
        "cost",
        "several",
        counts,
        "" if dearer else "none",
        more=str(len(dearer)),
        all=str(len(compared)),
        base=say("answer.no-encryption"),
        ends=" to ".join(dict.fromkeys(ends[:1] + ends[-1:])),
        rest="".join(f"; {text}" for text in others),
        counts=", ".join(others),
    )


def _most(results: Results) -> AnswerLine:
    """Return the largest settled increase of a workload; of one configuration the most joules."""
    suite, component = results.suite, results.family.component
    if len(suite.configurations) == 1:
        return _most_joules(results, component)
    rows = [(key, c) for key, c in results.family.versus.items() if key[3] == component]
    if not rows:
        return line("most", "unknown")
    if any(c.verdict == "incomplete" for _, c in rows):
        return line("most", "incomplete", blocks=suite.blocks_done)
    increases = [(key, c) for key, c in rows if c.verdict == "differs" and c.ratio > 1]

    def two_disks(name: str) -> bool:
        return disks.across(suite, suite.base_of(name), name)

    # The cost of encryption precedes that of another disk.
    worst = max(increases, key=lambda row: (not two_disks(row[0][1]), row[1].ratio), default=None)
    if worst is None:
        shown = [c for _, c in rows if c.verdict != "inconclusive"]
        code = "nothing" if len(shown) == len(rows) else "unsettled"
        margin = f"{suite.margin * 100:g} %"
        return line("most", code, {"compared": len(rows)}, margin=margin, base=suite.base_label)
    (workload, name, *_), c = worst
    low, high = c.low or c.ratio, c.high or c.ratio
    facts = {"configuration": name, "workload": workload, "component": component}
    return line(
        "most",
        "found",
        {**facts, "ratio": c.ratio, "low": low, "high": high},
        name=suite.label(name),
        workload=words.name_of(workload),
        distance=words.change_only(c)[1:],
        part="" if component == SYSTEM else say("answer.most.part", part=words.name_of(component)),
        base=say("answer.other-disk", base=suite.label(suite.base_of(name) or ""))
        if two_disks(name)
        else say("answer.no-encryption"),
        interval=f"95 % interval {words.interval_of(low, high)}",
    )


def _most_joules(results: Results, component: str) -> AnswerLine:
    rows = [row for row in results.summary_rows if row.component == component]
    worst = max(rows, key=lambda row: row.mean_j, default=None)
    if worst is None:
        return line("most", "unknown")
    joules = words.plus_minus(worst.joules, "J")
    where: dict[str, Fact] = {"workload": worst.workload, "component": component}
    facts = where | {"mean_j": worst.mean_j}
    return line("most", "joules", facts, name=words.name_of(worst.workload), joules=joules)


def _battery(results: Results) -> Iterator[AnswerLine]:
    """Yield the line on minutes of battery, of the configuration that loses most."""
    held = [h for h in battery_hours(results.suite, results.energy) if h.lost_min is not None]
    worst = max(held, key=lambda h: h.lost_min.mean if h.lost_min else 0.0, default=None)
    if worst is None or worst.lost_min is None:
        return
    lost = worst.lost_min
    if lost.low is None or lost.high is None:
        return
    suite = results.suite
    contrast = contrast_of(results, suite.base_of(worst.configuration), worst.configuration)
    c = contrast.comparison if contrast else None
    if c is None or c.verdict == "incomplete":
        return
    code = "unsettled"  # if its energy is
    if c.verdict not in OPEN and not lost.low <= 0 <= lost.high:
        code = "lost" if lost.mean > 0 else "gained"
    places = words.decimals((lost.high - lost.low) / 2, lost.mean)
    low, high = (words.number(end, places) for end in (lost.low, lost.high))
    facts = {"configuration": worst.configuration, "lost_min": list(ends(lost))}
    yield line(
        "battery",
        code,
        {**facts, "hours": list(ends(worst.hours))},
        name=results.suite.label(worst.configuration),
        minutes=words.number(abs(lost.mean), places),
        interval=f"{low} to {high}",
        hours=words.rounded(worst.hours.mean),
    )


def _trusted(results: Results) -> AnswerLine:
    """Return the line on trust: the number of figures, proofs and checks, or of remarks."""
    suite = results.suite
    blocks = len({run.block for run in suite.compared_runs})
    planned = suite.planned_blocks or blocks
    verdicts = [row[-1] for row in cross_checks(results)]
    flags = {
        "cross-check": verdicts.count(DISAGREES),
        "reservation": len(results.reservations),
        "problem": len(suite.problems),
    }
    remarks = trust_section.remarks(results)
    proven = sum(run.proof.ok for run in suite.runs)
    runs = f"{count(len(suite.runs), 'run')} proven"
    if proven < len(suite.runs):
        runs = f"{count(len(suite.runs), 'run')}, {proven} proven"
    parts = [count(blocks, "block") if blocks == planned else f"{blocks} of {planned} blocks"]
    parts += [runs, *["none void"] * (not suite.void)]
    if suite.runs and AGREES in verdicts and not flags["cross-check"]:
        parts.append("all cross-checks agree")
    if results.drift_check is not None and results.drift_check.verdict != MOVED:
        parts.append(say(f"answer.trust.drift.{results.drift_check.verdict.replace(' ', '-')}"))
    if not suite.seal_holds:
        parts.append("files changed" if suite.sealed else "not sealed")
    facts = {"blocks": blocks, "planned": planned, "runs": len(suite.runs), "void": len(suite.void)}
    return line(
        "trust",
        results.origin,
        {**facts, **{f"{noun}s": number for noun, number in flags.items()}},
        "remarks" if remarks else "",
        remarks=count(len(remarks), "reservation"),
        parts=", ".join(parts),
    )


def _next(results: Results, compared: Sequence[_Compared], folder: Path) -> AnswerLine:
    """Return the line on the next step."""
    incidents = results.incidents
    if unsound := _unsound(results.suite, incidents, folder):
        return unsound
    if incidents.void_to_end or incidents.never:
        return line("next", "resume", _command("resume", folder), "void")
    lacking = [cost.why[0] for cost in compared if cost.comparison is None]
    for why in lacking:
        if why != "skipped":  # this machine cannot run it, however often it tries
            command = _again(results) if why in RUN_AGAIN else ""
            return line("next", why, {"command": command})
    unsettled = _unsettled(compared)
    if not unsettled:
        return line("next", "nothing-open", _command("verify", folder))
    needed = [
        (comparison.blocks_to_settle(c) or (comparison.PILOT, comparison.PILOT), cost)
        for cost, c in unsettled
    ]
    hopeless = [cost for (least, _), cost in needed if least > comparison.MOST_BLOCKS]
    if hopeless:
        return _quieter(results, [cost for cost, _ in unsettled if cost in hopeless])
    least, most = (max(comparison.PILOT, *(blocks[end] for blocks, _ in needed)) for end in (0, 1))
    advised = most if most <= comparison.MOST_BLOCKS else least
    command = _again(results, advised)
    facts: dict[str, Fact] = {"blocks": advised, "least": least, "most": most, "command": command}
    made = min(c.n for _, c in unsettled)
    facts["hours"] = hours = advised * _block_hours(results)
    return line(
        "next",
        "blocks",
        facts,
        "pilot" if made < 2 else "",
        names=_names([cost for cost, _ in unsettled]),
        blocks=str(most) if least == most else f"{least} to {most}",
        advised=str(advised),
        made=str(made),
        hours=f", {duration(3600 * hours)}" if hours else "",
    )


def _block_hours(results: Results) -> float:
    """Return the hours of a block with its rests and switches; 0 if unknown."""
    blocks_made = len({run.block for run in results.suite.compared_runs})
    return results.suite.timing.wall_s / 3600 / max(1, blocks_made)


def _quieter(results: Results, hopeless: Sequence[_Compared]) -> AnswerLine:
    """Return the workload that scatters most, and the reach of more blocks, in hours."""
    first = hopeless[0]
    bases = results.suite.reference(first.name), results.suite.baseline
    contrasts = (contrast_of(results, base, first.name) for base in bases)
    contrast = next(filter(None, contrasts), None)
    scatter = scatter_shares(contrast) if contrast else {}
    facts: dict[str, Fact] = {"configurations": [cost.name for cost in hopeless]}
    worst = max(scatter, key=lambda name: scatter[name], default="")
    advice = ""
    if worst:
        facts |= {"workload": worst, "share": scatter[worst]}
        share = f"{100 * scatter[worst]:.0f} %"
        advice = say("answer.next.quieter.worst", workload=words.name_of(worst), share=share)
    reach = comparison.reachable_width(first.comparison) if first.comparison else None
    hours = _block_hours(results)
    if reach is not None and hours:
        width, blocks = reach
        facts |= {"half_width": width, "blocks": blocks, "hours": blocks * hours}
        advice += say(
            "answer.next.quieter.reach",
            width=f"{100 * width:g} %",
            blocks=str(blocks),
            hours=duration(3600 * blocks * hours),
        )
    return line("next", "quieter", facts, names=_names(hopeless), said=advice)


def without_report(suite: Suite, incidents: IncidentLog, folder: Path) -> AnswerLine:
    """Return the next step of a suite without a current report."""
    unsound = _unsound(suite, incidents, folder)
    return unsound or line("next", "report", _command("report", folder))


def _unsound(suite: Suite, incidents: IncidentLog, folder: Path) -> AnswerLine | None:
    """Return the next step of a suite that is unsealed, or changed after sealing."""
    if not suite.sealed:
        way = "ended" if incidents.ended and not incidents.never else "unfinished"
        return line("next", "resume", _command("resume", folder), way)
    return None if suite.seal_holds else line("next", "verify", _command("verify", folder))


def _command(name: str, folder: Path) -> dict[str, str]:
    return {"command": command_line(name, folder)}


def _again(results: Results, blocks: int = 0) -> str:
    """Return the command that plans and runs the suite again; empty if its name is unsafe."""
    plan = results.suite.plan
    if plan.suite == HERE:
        return command_line("here", minutes=math.ceil(60 * blocks * _block_hours(results)))
    scale = "" if plan.origin == SYNTHETIC else scale_of(plan.scale)
    if not safe(scale) and scale:
        return ""
    return command_line("run", suite=plan.suite, scale=scale, blocks=blocks)
