"""The answer for several hosts, and the tables of their page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from analysis.energy import trust
from analysis.report import answer, missing_section, view, words
from analysis.report.provenance import sentence as incidents_sentence
from analysis.report.tables import cell_of
from analysis.report.view import Blocks, Fields, Group, Matrix, MatrixCell
from analysis.report.words import count
from analysis.stats import disks
from analysis.stats.comparison import Comparison
from analysis.stats.contrasts import counted
from analysis.stats.host_effects import LEAST_HOSTS
from analysis.stats.hosts import ALL, Effect, Hosts
from analysis.stats.results import Results
from analysis.suite.records import MEASURED, SYSTEM

NAMED = 3  # so many configurations are told one by one, more of them as a range
DRIVE, SOFTWARE = "encryption in the drive (Opal)", "encryption in software"


def sentences(found: Hosts) -> list[str]:
    """What the drive's encryption costs on these hosts, what software's does, and on others."""
    suite = found.first
    drive = _effects(found, [] if suite.sed is None else [suite.sed])
    software = _effects(found, suite.software)
    return [_costs(found, DRIVE, drive), _costs(found, SOFTWARE, software), _general(found)]


def terminal(found: Hosts) -> Blocks:
    """For the terminal: the table over all workloads, the answer, and what is not alike."""
    rows = [
        [_pair(found, e), *map(_mean, [*map(e.by_host.get, found.names), e.these]), e.hosts]
        for e in found.overall
    ]
    headers = ("over all workloads", *found.names, "these hosts", "do they differ")
    said = [*sentences(found), *(f"note: {text}" for text in found.shared.said)]
    table = view.table("", headers, rows)
    return answer.banner(found.origin) + table + view.join(map(view.paragraph, said))


def _effects(found: Hosts, names: Sequence[str]) -> list[Effect]:
    return [
        effect
        for name in names
        if (effect := found.against_baseline(name)) is not None and effect.these is not None
    ]


def _costs(found: Hosts, what: str, effects: Sequence[Effect]) -> str:
    """Each configuration's mean over these hosts, and whether that mean speaks for each of them."""
    if not effects:
        return f"What {what} costs on these hosts is unknown: not every host has both sides."
    used = min(len(effect.workloads) for effect in effects)
    blocks = min(effect.these.n for effect in effects if effect.these)
    where = (
        f"On these {len(found.names)} hosts {what} changes the {words.name_of(found.component)}'s "
        f"energy against {found.first.label(found.first.baseline or '')}, over "
        f"{answer.extent(used, len(counted(found.first)), blocks)} each,"
    )
    if len(effects) <= NAMED:
        labelled = what != DRIVE
        return f"{where} {'; '.join(_one(found, effect, labelled) for effect in effects)}."
    by_ratio = sorted((e.these.ratio if e.these else 1.0, e.other) for e in effects)
    ends = [
        f"{words.percent(ratio)} ({found.first.label(name)})"
        for ratio, name in (by_ratio[0], by_ratio[-1])
    ]
    counts = {
        word: sum(e.hosts == word for e in effects) for word in ("alike", "differ", "inconclusive")
    }
    told = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
    return (
        f"{where} by {ends[0]} to {ends[1]} in the mean: of {len(effects)} configurations, as to "
        f"the hosts, {told}."
    )


def _one(found: Hosts, effect: Effect, labelled: bool) -> str:
    """One configuration: where the hosts differ, each of them comes before their mean."""
    c = effect.these
    if c is None:
        return ""
    label = f"with {found.first.label(effect.other)} " if labelled else ""
    each = [
        (name, words.change_alone(one.ratio, one.low, one.high))
        for name, one in effect.by_host.items()
    ]
    if effect.hosts == "differ":
        told = ", ".join(f"{change} on {name}" for name, change in each)
        return (
            f"{label}by {told}: the hosts differ significantly; their mean, {words.change(c)}, is "
            "no host's own"
        )
    told = ", ".join(f"{name} {change}" for name, change in each)
    alike = "whether the hosts differ is inconclusive"
    if effect.hosts == "alike":
        alike = f"the hosts are alike within ±{found.margin * 100:g} % of each other"
    return f"{label}by {words.change(c)} in the mean: {answer.judgement(c)}; {alike} ({told})"


def _general(found: Hosts) -> str:
    """What may be said of hosts that were not measured."""
    count = len(found.names)
    if count < LEAST_HOSTS:
        return (
            f"What holds for other hosts is unknown from {count}: these figures are of "
            f"{' and '.join(found.names)} alone (it takes {LEAST_HOSTS} hosts)."
        )
    names = [name for name in (found.first.sed, *found.first.software) if name is not None]
    there = [
        (effect.other, effect.general)
        for effect in _effects(found, names)
        if effect.general is not None
    ]
    if not there:
        return "What holds for other hosts is unknown: not every host has both sides."
    if len(there) > NAMED + 1:
        sure = sum(c.verdict != "inconclusive" for _, c in there)
        told = f"{sure} of {len(there)} configurations have a verdict"
    else:
        told = "; ".join(
            f"{found.first.label(name)} {words.change(c)}, {words.verdict_of(c)}"
            for name, c in there
        )
    return (
        f"For hosts in general, as far as these {count} were chosen at random from them "
        f"(the host is the unit, not the block): {told}."
    )


def heading(effect: Effect, found: Hosts) -> str:
    """Which workload an effect is of."""
    if effect.workload == ALL:
        return answer.over_all(found.first)
    return words.name_of(effect.workload)


def by_heading(found: Hosts) -> dict[str, list[Effect]]:
    """Effects beside the baseline; over all workloads only where they are several, for one alone
    would say the same twice."""
    whole = found.overall if len(counted(found.first)) > 1 else ()
    effects = [*(e for e in whole if e.base == found.first.baseline), *found.single]
    return {name: list(of) for name, of in groupby(effects, lambda e: heading(e, found))}


SIGNS = {"differ": "≠", "alike": "≈", "inconclusive": "?"}
VERDICTS = {"differ": "differs", "alike": "equivalent", "inconclusive": "inconclusive"}


def matrix(found: Hosts) -> Blocks:
    """Workload × configuration with the hosts side by side, their mean, and whether they differ."""
    by = by_heading(found)
    if not by:
        return ()
    baseline = found.first.label(found.first.baseline or "")
    shown = Matrix(
        f"Energy of the {words.name_of(found.component)} against {baseline}, by host",
        ("Configuration", *found.names, f"Mean of {len(found.names)}", "Hosts"),
        tuple(
            Group(name, tuple((found.first.label(e.other), tuple(_cells(found, e))) for e in of))
            for name, of in by.items()
        ),
        found.origin,
    )
    return (shown, *view.paragraph(_legend(found), "key"))


def _cells(found: Hosts, effect: Effect) -> Iterator[MatrixCell]:
    for c in (*map(effect.by_host.get, found.names), effect.these):
        cell, sign = cell_of(c), words.sign(c.verdict, c.ratio, c.both) if c else ""
        yield cell._replace(text=f"{sign} {cell.text}".strip(), below="")
    if effect.these is None:
        yield MatrixCell("")
        return
    told = f"p {words.p_value(effect.p_differ_holm)} that all are the same (Holm)"
    yield MatrixCell(f"{SIGNS[effect.hosts]} {effect.hosts}", VERDICTS[effect.hosts], told)


def _legend(found: Hosts) -> str:
    margin = f"±{found.margin * 100:g} %"
    return (
        f"▲ significant increase, ▼ significant decrease. ≈ equivalent: within {margin}. "
        "? inconclusive. The mean weighs each host the same, and is of these hosts only. Hosts "
        "≠ differ: significantly not all the same; ≈ alike: every two of them within "
        f"{margin} of each other; ? inconclusive. Among all of a column at most 5 % risk (Holm)."
    )


FACTS = (
    ("System", "os_release"),
    ("Kernel", "uname"),
    ("Kernel", "kernel"),
    ("Processor", "cpu.model"),
    ("Microcode", "cpu.microcode"),
    ("Governor", "cpu.governor"),
    ("Memory, bytes", "memory_bytes"),
    ("cryptsetup", "versions.cryptsetup"),
    ("Database", "versions.mariadbd"),
)
FEW = 5  # blocks, below which Welch's test errs more often than it says


def tests(found: Hosts) -> Blocks:
    """Every effect: the mean of these hosts, the statement for others, and the two tests."""
    columns: Fields[Effect] = {
        "Workload": lambda e: heading(e, found),
        "Configuration / against": lambda e: _pair(found, e),
        "Blocks, fewest": lambda e: words.NOTHING if e.these is None else str(e.these.n),
        "Mean of these hosts [95 %]": lambda e: (
            f"no figure of {', '.join(e.lacking)}" if e.these is None else _mean(e.these)
        ),
        "Hosts in general [95 %]": lambda e: _mean(e.general),
        "Largest / smallest host": lambda e: (
            words.NOTHING if e.these is None or e.spread is None else words.percent(e.spread)
        ),
        "p, all the same (Holm)": lambda e: words.p_value(e.p_differ_holm),
        "p, not alike (Holm)": lambda e: words.p_value(e.p_alike_holm),
        "Hosts": lambda e: "" if e.these is None else e.hosts,
    }
    what = "Each host weighs the same in both means; joules of different hosts are never added"
    effects = (*found.overall, *found.single)
    page = view.table_of(what, effects, columns, words=2, origin=found.origin, group=True)
    page += view.paragraph(
        "All the same: Welch's one-way test of the blocks' log-ratios, which lets every host "
        "scatter by itself. Not alike: the largest p of all pairs' tests of a ratio within "
        f"±{found.margin * 100:g} % (TOST). These hosts: standard error from the hosts' own, "
        "degrees of freedom by Welch and Satterthwaite. Hosts in general: Student's t over the "
        "hosts' means, one figure a host, from three hosts on; it holds as far as the hosts were "
        "chosen at random. Rows over all workloads are one family, the others another.",
        "key",
    )
    blocks = [e.these.n for e in found.overall if e.these is not None]
    if blocks and min(blocks) < FEW:
        page += view.paragraph(
            f"A host has fewer than {FEW} blocks: so few make Welch's test call up to 8 % of equal "
            "hosts different instead of 5 %.",
            "key",
        )
    return page


def _pair(found: Hosts, effect: Effect) -> str:
    return f"{found.first.label(effect.other)} / {found.first.label(effect.base)}"


def _mean(c: Comparison | None) -> str:
    if c is None:
        return words.NOTHING
    return f"{words.change_in(c)} {words.sign(c.verdict, c.ratio, c.both)}"


def trusted(found: Hosts) -> Iterator[str]:
    """How far to trust each host, a line each."""
    for host in found.hosts:
        yield f"{host.name}: {'; '.join(_trusted(host.found))}."


def _trusted(found: Results) -> Iterator[str]:
    suite = found.suite
    blocks = len({run.block for run in suite.runs})
    planned = suite.planned_blocks or blocks
    yield f"{blocks} of {count(int(planned), 'block')}, {count(len(suite.runs), 'finished run')}"
    yield answer.void(suite)
    if left := missing_section.sentence(suite):
        yield left
    for meter in trust.meters(suite, found.energy):
        if meter.component == SYSTEM and meter.mean_coverage is not None:
            share = min(meter.mean_coverage, 0.9999 if meter.gaps else 1.0)
            yield f"{meter.source} saw {share * 100:.4g} % of the measured time"
    seen = found.drift_check
    if seen is None:
        yield "no drift check"
    else:
        moved, limit = words.percent(1 + seen.worst.change, 2), words.given(seen.limit * 100)
        yield f"drift check {seen.verdict} ({moved}, limit ±{limit} %)"
    if told := incidents_sentence(found.incidents):
        yield told[0].lower() + told[1:].rstrip(".")
    if not suite.sealed:
        yield "not sealed"
    if suite.problems:
        yield f"{count(len(suite.problems), 'reservation')}, told in its own report"


def provenance(found: Hosts) -> Blocks:
    """What each host is, side by side; what is the same everywhere stands once in each column."""
    facts = [_facts(host.found) for host in found.hosts]
    labels = dict.fromkeys(label for of in facts for label in of)
    rows = [[label, *(of.get(label, words.NOTHING) for of in facts)] for label in labels]
    heads = ["What", *found.names]
    table = view.table("Machines, disks and meters", heads, rows, words=len(heads))
    return table + view.paragraph(
        "A meter's limits of error are in the joules of its own host alone; within a host most of "
        "them cancel in a ratio, between hosts nothing would. So ratios are compared, not joules.",
        "key",
    )


def _facts(found: Results) -> dict[str, str]:
    suite = found.suite
    facts = {"Suite": suite.suite_id, "Planned": suite.plan.created_wall}
    of_disks = [
        (f"Disk {role}, {what}", f"disks.{role}.{what}")
        for role in disks.roles(suite)
        for what in ("model", "firmware", "size_bytes", "transport")
    ]
    for label, path in (*FACTS, *of_disks):
        if text := suite.machine.get(path):
            facts.setdefault(label, text)
    for meter in suite.meters:
        limit = meter.accuracy.get("relative_limit")
        stated = f", ±{limit * 100:g} % by its maker" if isinstance(limit, int | float) else ""
        origin = "" if meter.origin == MEASURED else f", {meter.origin}"
        channels = ", ".join(meter.channels)
        facts[f"Meter {meter.name}"] = f"{meter.kind}: {channels}{stated}{origin}"
    # How large the machine is.
    rows = found.summary.filter(configuration=suite.baseline or "", component=SYSTEM)
    watts = [float(w) for w in rows["mean_w"] if w is not None]
    mean = words.number(sum(watts) / len(watts)) if watts else words.NOTHING
    facts["Joules"] = (
        f"{mean} W in the mean of all workloads on {suite.label(suite.baseline or '')}"
    )
    return facts
