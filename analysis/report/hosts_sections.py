"""Tables of the page of several hosts: whether they differ, how far to trust each, what each is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from analysis.energy import trust
from analysis.report import left_out, markup, night_table, words
from analysis.report.answer import count
from analysis.report.hosts_answer import heading
from analysis.report.markup import Html
from analysis.stats.hosts import Effect, Hosts
from analysis.stats.results import Results
from analysis.stats.stats import Comparison
from analysis.suite.origin import MEASURED
from analysis.suite.records import SYSTEM, Meter, Suite

TESTS = (
    "Workload",
    "Configuration / against",
    "Blocks, fewest",
    "Mean of these hosts [95 %]",
    "Hosts in general [95 %]",
    "Largest / smallest host",
    "p, all the same (Holm)",
    "p, not alike (Holm)",
    "Hosts",
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
    *(
        (f"Disk {role}, {what}", f"disks.{role}.{what}")
        for role in ("plain", "sed")
        for what in ("model", "firmware", "size_bytes", "transport")
    ),
)
FEW = 5  # blocks, below which Welch's test errs more often than it says


def tests(found: Hosts) -> Html:
    """Every effect: the mean of these hosts, the statement for others, and the two tests."""
    rows = [list(_test(found, effect)) for effect in (*found.overall, *found.single)]
    page = markup.table(
        "Each host weighs the same in both means; joules of different hosts are never added",
        TESTS,
        rows,
        words=2,
        origin=found.origin,
        group=True,
    )
    page += markup.paragraph(
        "All the same: Welch's one-way test of the blocks' log-ratios, which lets every host "
        "scatter by itself. Not alike: the largest p of all pairs' tests of a ratio within "
        f"±{found.margin * 100:g} % (TOST). These hosts: standard error from the hosts' own, "
        "degrees of freedom by Welch and Satterthwaite. Hosts in general: Student's t over the "
        "hosts' means, one figure a host, from three hosts on; it holds as far as the hosts were "
        "chosen at random. Rows over all workloads are one family of Holm's, the others another.",
        "key",
    )
    blocks = [e.these.n for e in found.overall if e.these is not None]
    if blocks and min(blocks) < FEW:
        page += markup.paragraph(
            f"A host has fewer than {FEW} blocks: so few make Welch's test call up to 8 % of equal "
            "hosts different instead of 5 %.",
            "key",
        )
    return page


def _test(found: Hosts, effect: Effect) -> Iterator[str]:
    yield heading(effect, found)
    yield f"{found.first.label(effect.other)} / {found.first.label(effect.base)}"
    if effect.these is None:
        yield from (words.NOTHING, f"no figure of {', '.join(effect.lacking)}")
        yield from [words.NOTHING] * 4
        yield ""
        return
    yield str(effect.these.n)
    yield _mean(effect.these)
    yield _mean(effect.general)
    yield words.NOTHING if effect.spread is None else words.percent(effect.spread)
    yield words.p_value(effect.p_differ_holm)
    yield words.p_value(effect.p_alike_holm)
    yield effect.hosts


def _mean(c: Comparison | None) -> str:
    if c is None:
        return words.NOTHING
    return f"{words.change_of(c.ratio, c.low, c.high)} {words.sign(c.verdict, c.ratio, c.both)}"


def trusted(found: Hosts) -> Iterator[str]:
    """How far to trust each host, a line each."""
    for host in found.hosts:
        yield f"{host.name}: {'; '.join(_trusted(host.found))}."


def _trusted(found: Results) -> Iterator[str]:
    suite = found.suite
    blocks = len({run.block for run in suite.runs})
    planned = suite.planned_blocks or blocks
    yield f"{blocks} of {count(int(planned), 'block')}, {count(len(suite.runs), 'finished run')}"
    yield f"{count(len(suite.void), 'run')} void" if suite.void else "none void"
    if left := left_out.sentence(suite):
        yield left
    for meter in trust.meters(suite, found.energy):
        if meter.component == SYSTEM and meter.mean_coverage is not None:
            share = min(meter.mean_coverage, 0.9999 if meter.gaps else 1.0)
            yield f"{meter.source} saw {share * 100:.4g} % of the measured time"
    seen = found.canary
    if seen is None:
        yield "no canary"
    else:
        moved = (
            f"{words.percent(1 + seen.worst.change, 2)}, limit ±{words.given(seen.limit * 100)} %"
        )
        yield f"canary {seen.verdict} ({moved})"
    if told := night_table.sentence(found.night):
        yield told[0].lower() + told[1:].rstrip(".")
    if not suite.sealed:
        yield "not sealed"
    if suite.problems:
        yield f"{count(len(suite.problems), 'reservation')}, told in its own report"


def provenance(found: Hosts) -> Html:
    """What each host is, side by side; what is the same everywhere stands once in each column."""
    facts = [_facts(host.found) for host in found.hosts]
    labels = dict.fromkeys(label for of in facts for label in of)
    rows = [[label, *(of.get(label, words.NOTHING) for of in facts)] for label in labels]
    table = markup.table(
        "Machines, disks and meters", ["What", *found.names], rows, words=1 + len(found.names)
    )
    return table + markup.paragraph(
        "A meter's limits of error are in the joules of its own host alone; within a host most of "
        "them cancel in a ratio, between hosts nothing would. So ratios are compared, not joules.",
        "key",
    )


def _facts(found: Results) -> dict[str, str]:
    suite = found.suite
    facts = {"Suite": suite.suite_id, "Planned": str(suite.plan.get("created_wall", ""))}
    for label, path in FACTS:
        text = _at(suite.before, path)
        if text:
            facts.setdefault(label, text)
    for meter in suite.meters:
        facts[f"Meter {meter.name}"] = _meter(meter)
    facts["Joules"] = _joules(suite, found)
    return facts


def _meter(meter: Meter) -> str:
    accuracy = meter.accuracy.get("relative_limit")
    said = f", ±{accuracy * 100:g} % by its maker" if isinstance(accuracy, int | float) else ""
    origin = "" if meter.origin == MEASURED else f", {meter.origin}"
    return f"{meter.kind}: {', '.join(meter.channels)}{said}{origin}"


def _joules(suite: Suite, found: Results) -> str:
    """Of one run of the baseline, mean over the working workloads: how large the machine is."""
    rows = found.summary.filter(configuration=suite.baseline or "", component=SYSTEM)
    watts = [float(w) for w in rows["mean_w"] if w is not None]
    mean = words.number(sum(watts) / len(watts)) if watts else words.NOTHING
    return f"{mean} W in the mean of all workloads on {suite.label(suite.baseline or '')}"


def _at(document: Mapping[str, Any], path: str) -> str:
    value: Any = document
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)
