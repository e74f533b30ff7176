"""The answer for several hosts, and the tables of their page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from analysis.report import answer, missing_section, view, words
from analysis.report.provenance import plan_and_machine
from analysis.report.steadiness_section import drift_check_sentence
from analysis.report.tables import cell_of
from analysis.report.texts import say
from analysis.report.trust_section import measured_sentence
from analysis.report.view import Blocks, Fields, Group, Matrix, MatrixCell
from analysis.report.words import count
from analysis.stats import disks
from analysis.stats.comparison import Comparison
from analysis.stats.contrasts import counted
from analysis.stats.host_effects import LEAST_HOSTS
from analysis.stats.hosts import ALL, Effect, Hosts
from analysis.stats.results import Results
from analysis.suite.records import MEASURED, SYSTEM

DRIVE, SOFTWARE = "encryption in the drive (Opal)", "encryption in software"


def sentences(group: Hosts) -> list[str]:
    """Return the cost of encryption by drive and by software on these hosts, and on others."""
    suite = group.first
    drive = _effects(group, [] if suite.sed is None else [suite.sed])
    software = _effects(group, suite.software)
    return [_costs(group, DRIVE, drive), _costs(group, SOFTWARE, software), _general(group)]


def terminal(group: Hosts) -> Blocks:
    """For the terminal: the table over all workloads, the answer, and what is not alike."""
    rows = [
        [_pair(group, e), *map(_mean, [*map(e.by_host.get, group.names), e.these]), e.hosts]
        for e in group.overall
    ]
    headers = ("over all workloads", *group.names, "these hosts", "do they differ")
    lines = [*sentences(group), *(f"note: {text}" for text in group.shared.remarks)]
    table = view.table("", headers, rows)
    return answer.banner(group.origin) + table + view.join(map(view.paragraph, lines))


def _effects(group: Hosts, names: Sequence[str]) -> list[Effect]:
    return [
        effect
        for name in names
        if (effect := group.against_baseline(name)) is not None and effect.these is not None
    ]


def _costs(group: Hosts, what: str, effects: Sequence[Effect]) -> str:
    """Each configuration's mean over these hosts, and whether that mean holds for each of them."""
    if not effects:
        return f"What {what} costs on these hosts is unknown: not every host has both sides."
    used = min(len(effect.workloads) for effect in effects)
    blocks = min(effect.these.n for effect in effects if effect.these)
    where = (
        f"On these {len(group.names)} hosts {what} changes the {words.name_of(group.component)}'s "
        f"energy against {group.first.label(group.first.baseline or '')}, over "
        f"{answer.extent(used, len(counted(group.first)), blocks)} each,"
    )
    labelled = what != DRIVE
    return f"{where} {'; '.join(_effect_sentence(group, effect, labelled) for effect in effects)}."


def _effect_sentence(group: Hosts, effect: Effect, labelled: bool) -> str:
    """One configuration: where the hosts differ, each of them comes before their mean."""
    c = effect.these
    if c is None:
        return ""
    label = f"with {group.first.label(effect.other)} " if labelled else ""
    each = [(name, words.change_alone(comparison)) for name, comparison in effect.by_host.items()]
    if effect.hosts == "differ":
        changes = ", ".join(f"{change} on {name}" for name, change in each)
        return f"{label}{say('hosts.differ', changes=changes, mean=words.change(c))}"
    changes = ", ".join(f"{name} {change}" for name, change in each)
    alike = "whether the hosts differ is inconclusive"
    if effect.hosts == "alike":
        alike = f"the hosts are alike within ±{group.margin * 100:g} % of each other"
    return f"{label}by {words.change(c)} in the mean: {answer.judgement(c)}; {alike} ({changes})"


def _general(group: Hosts) -> str:
    """Return what holds of hosts that were not measured."""
    count = len(group.names)
    if count < LEAST_HOSTS:
        fields = {"count": str(count), "least": str(LEAST_HOSTS)}
        return say("hosts.general.few", names=" and ".join(group.names), **fields)
    names = [name for name in (group.first.sed, *group.first.software) if name is not None]
    effects = [(effect.other, c) for effect in _effects(group, names) if (c := effect.general)]
    if not effects:
        return "What holds for other hosts is unknown: not every host has both sides."
    verdicts = "; ".join(
        f"{group.first.label(name)} {words.change(c)}, {words.verdict_of(c)}" for name, c in effects
    )
    return say("hosts.general", count=str(count), verdicts=verdicts)


def heading(effect: Effect, group: Hosts) -> str:
    """Which workload an effect is of."""
    if effect.workload == ALL:
        return answer.over_all(group.first)
    return words.name_of(effect.workload)


def by_heading(group: Hosts) -> dict[str, list[Effect]]:
    """Effects beside the baseline.

    Over all workloads only where they are several, for one alone would repeat it.
    """
    overall = group.overall if len(counted(group.first)) > 1 else ()
    effects = [*(e for e in overall if e.base == group.first.baseline), *group.single]
    return {name: list(members) for name, members in groupby(effects, lambda e: heading(e, group))}


SIGNS = {"differ": "≠", "alike": "≈", "inconclusive": "?"}
VERDICTS = {"differ": "differs", "alike": "equivalent", "inconclusive": "inconclusive"}


def matrix(group: Hosts) -> Blocks:
    """Workload × configuration with the hosts side by side, their mean, and whether they differ."""
    by = by_heading(group)
    if not by:
        return ()
    baseline = group.first.label(group.first.baseline or "")
    shown = Matrix(
        f"Energy of the {words.name_of(group.component)} against {baseline}, by host",
        ("Configuration", *group.names, f"Mean of {len(group.names)}", "Hosts"),
        tuple(
            Group(
                name, tuple((group.first.label(e.other), tuple(_cells(group, e))) for e in members)
            )
            for name, members in by.items()
        ),
        group.origin,
    )
    return (shown, *view.key("hosts.matrix", margin=f"±{group.margin * 100:g} %"))


def _cells(group: Hosts, effect: Effect) -> Iterator[MatrixCell]:
    for c in (*map(effect.by_host.get, group.names), effect.these):
        cell, sign = cell_of(c), words.sign(c.verdict, c.ratio, c.both) if c else ""
        yield cell._replace(text=f"{sign} {cell.text}".strip(), below="")
    if effect.these is None:
        yield MatrixCell("")
        return
    hint = f"p {words.p_value(effect.p_differ_holm)} that all are the same (Holm)"
    yield MatrixCell(f"{SIGNS[effect.hosts]} {effect.hosts}", VERDICTS[effect.hosts], hint)


FEW = 5  # blocks, below which Welch's test errs more often than it says


def tests(group: Hosts) -> Blocks:
    """Every effect: the mean of these hosts, the statement for others, and the two tests."""
    columns: Fields[Effect] = {
        "Workload": lambda e: heading(e, group),
        "Configuration / against": lambda e: _pair(group, e),
        "Blocks, fewest": lambda e: words.NOTHING if e.these is None else str(e.these.n),
        "Mean of these hosts [95 %]": lambda e: (
            f"no figure of {', '.join(e.lacking)}" if e.these is None else _mean(e.these)
        ),
        "Hosts in general [95 %]": lambda e: _mean(e.general),
        "p, all the same (Holm)": lambda e: words.p_value(e.p_differ_holm),
        "p, not alike (Holm)": lambda e: words.p_value(e.p_alike_holm),
        "Hosts": lambda e: "" if e.these is None else e.hosts,
    }
    what = "Each host weighs the same in both means; joules of different hosts are never added"
    effects = (*group.overall, *group.single)
    page = view.table_of(what, effects, columns, words=2, origin=group.origin, group=True)
    page += view.key("hosts.tests", margin=f"±{group.margin * 100:g} %")
    few = any(e.these is not None and e.these.n < FEW for e in group.overall)
    return page + view.key("hosts.few", least=str(FEW)) * few


def _pair(group: Hosts, effect: Effect) -> str:
    return f"{group.first.label(effect.other)} / {group.first.label(effect.base)}"


def _mean(c: Comparison | None) -> str:
    if c is None:
        return words.NOTHING
    return f"{words.change_in(c)} {words.sign(c.verdict, c.ratio, c.both)}"


def trusted(group: Hosts) -> Iterator[str]:
    """How far to trust each host, a line each."""
    for host in group.hosts:
        results = host.results
        left, problems = missing_section.sentence(host.suite), len(host.suite.problems)
        drift = drift_check_sentence(host.suite, results.drift_check)
        texts = [measured_sentence(results), drift, f"Not measured: {left}." if left else ""]
        texts += [f"{count(problems, 'reservation')} in its own report."] * bool(problems)
        yield f"{host.name}: {' '.join(filter(None, texts))}"


def provenance(group: Hosts) -> Blocks:
    """Return what each host is, side by side.

    What is the same everywhere stands once in each column.
    """
    facts = [_facts(host.results) for host in group.hosts]
    labels = dict.fromkeys(label for host_facts in facts for label in host_facts)
    rows = [
        [label, *(host_facts.get(label, words.NOTHING) for host_facts in facts)] for label in labels
    ]
    heads = ["What", *group.names]
    table = view.table("Machines, disks and meters", heads, rows, words=len(heads))
    return table + view.key("hosts.meters")


def _facts(results: Results) -> dict[str, str]:
    suite = results.suite
    facts = plan_and_machine(results)
    for role in disks.roles(suite):
        of_disk = (suite.machine.get(f"disks.{role}.{what}") for what in ("model", "firmware"))
        facts[f"Disk {role}"] = ", ".join(filter(None, of_disk)) or words.NOTHING
    for meter in suite.meters:
        limit = next((t.limit for t in meter.terms if t.name == "gain"), None)
        stated = "" if limit is None else f", ±{limit * 100:g} % by its maker"
        origin = "" if meter.origin == MEASURED else f", {meter.origin}"
        channels = ", ".join(meter.channels)
        facts[f"Meter {meter.name}"] = f"{meter.kind}: {channels}{stated}{origin}"
    # How large the machine is.
    rows = results.summary.filter(configuration=suite.baseline or "", component=SYSTEM)
    watts = [float(w) for w in rows["mean_w"] if w is not None]
    mean = words.number(sum(watts) / len(watts)) if watts else words.NOTHING
    facts["Joules"] = (
        f"{mean} W in the mean of all workloads on {suite.label(suite.baseline or '')}"
    )
    return facts
