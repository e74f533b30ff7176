"""The answer in three sentences, the same on the page and on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from analysis.report import view, words
from analysis.report.payback_text import money_sentence
from analysis.report.texts import say
from analysis.report.view import Blocks
from analysis.report.words import count, listed
from analysis.stats import disks
from analysis.stats.comparison import Comparison, verdict
from analysis.stats.contrasts import Contrast, counted
from analysis.stats.results import Results
from analysis.suite.records import MEASURED, MODELLED, SYNTHETIC, SYSTEM, Suite

NAMED = 3  # so many software configurations are told one by one, more of them as a range
MOST = 6  # so many configurations are named, of more their number


def banner(origin: str) -> Blocks:
    """What must be said of figures that are not measured; nothing where they are."""
    if origin == MEASURED:
        return ()
    said = view.paragraph(say(f"banner.{SYNTHETIC if origin == SYNTHETIC else MODELLED}"))
    return view.note(f"{origin.capitalize()}. ", said, origin)


def first_screen(found: Results) -> Blocks:
    """What was measured, what encryption costs, whether the drive is repaid: a paragraph each."""
    told = sentences(found)
    parts = {"measured": measured(found), "result": " ".join(told)}
    if len(told) == 3:
        parts = {"measured": parts["measured"], "cost": " ".join(told[:2]), "payback": told[2]}
    return view.join(
        view.paragraph(text, "answer", say(f"answer.{name}.label")) for name, text in parts.items()
    )


def measured(found: Results) -> str:
    """What was measured on which machine and disks, by what, and how often, in one sentence."""
    suite = found.suite
    there = set(found.summary["component"])
    package = "package" if "package" in there else "package-0"
    parts = [words.name_of(name) for name in (SYSTEM, "drive", package, "dram") if name in there]
    known = suite.before.get("cpu")
    cpu = str(known.get("model") or "") if isinstance(known, Mapping) else ""
    facts = [cpu, say("answer.disks", disks=", ".join(disks.models(suite)))]
    inside = "; ".join(facts[: 2 if disks.models(suite) else 1]).strip("; ")
    machine = suite.host or "one machine"
    means = [f"the meter {meter.kind}" for meter in suite.meters]
    means += ["RAPL"] * any(run.phases and run.phases[0].counters for run in suite.runs)
    names = suite.configurations
    labels = [suite.label(name) for name in names] or ["no configuration"]
    return say(
        "answer.measured",
        parts=listed([f"the {part}" for part in parts] or ["nothing"]),
        machine=f"{machine} ({inside})" if inside else machine,
        means=listed(list(dict.fromkeys(means)) or ["no source"]),
        work=count(len({run.workload for run in suite.compared_runs}), "workload"),
        configurations=listed(labels) if len(labels) <= MOST else f"{len(labels)} configurations",
        blocks=count(len({run.block for run in suite.compared_runs}), "block"),
        runs=count(len(suite.runs), "finished run"),
        void=void(suite),
    )


def void(suite: Suite) -> str:
    """`none void`, `3 runs void`."""
    return f"{count(len(suite.void), 'run')} void" if suite.void else "none void"


def sentences(found: Results) -> list[str]:
    """What the drive's encryption costs, what software's costs, and whether the drive is repaid.

    A suite of one configuration asks something else: then that is said, and what it did.
    """
    if len(found.suite.configurations) == 1:
        return list(_alone(found))
    return [hardware(found), software(found), money_sentence(found)]


def _alone(found: Results) -> Iterator[str]:
    suite = found.suite
    done = [name for name in suite.workloads if any(run.workload == name for run in suite.runs)]
    what = ", ".join(words.name_of(name) for name in done) or "no workload"
    yield (
        f"This suite has one configuration ({suite.label(suite.configurations[0])}), so that it "
        f"says nothing of what the encryption of a disk costs. It measured {what}: joules per unit "
        "of work and the papers' figures beside them stand below."
    )


def hardware(found: Results) -> str:
    """The self-encrypting drive beside the baseline over all workloads."""
    suite, what = found.suite, "encryption in the drive (Opal)"
    base = suite.reference(suite.sed or "")
    contrast = against(found, base, suite.sed)
    if contrast is None or contrast.comparison is None:
        return f"What {what} costs is unknown: {_lacking(found, [suite.sed] if suite.sed else [])}."
    c = contrast.comparison
    where = f"against {suite.label(base or '')}, over {_scope(found, contrast)}"
    if disks.across(suite, base, suite.sed):
        return (
            f"The self-encrypting disk with Opal changes the system's energy by {words.change(c)} "
            f"{where}. That is a difference between these two disks ({disks.described(suite)}) "
            f"and no verdict on encryption, which the suite one-disk, or sed-unlocked in this one, "
            "gives."
        )
    opening = f"{_opening(what, [c])} changes the system's energy by {words.change(c)}"
    return f"{opening} {where}: {judgement(c)}."


def software(found: Results) -> str:
    """The software configurations beside the baseline."""
    suite, what = found.suite, "encryption in software"
    there = [
        (name, contrast, contrast.comparison)
        for name in suite.software
        if (contrast := against(found, suite.reference(name), name)) and contrast.comparison
    ]
    if not there:
        return f"What {what} costs is unknown: {_lacking(found, suite.software)}."
    bases = {suite.label(contrast.base) for _, contrast, _ in there}
    where = f"against {bases.pop() if len(bases) == 1 else 'its disk without encryption'}"
    opening = f"{_opening(what, [c for _, _, c in there])} changes the system's energy"
    if len(there) > NAMED:
        several = len({contrast.workloads for _, contrast, _ in there}) > 1
        rest = "; not all of them over the same workloads" if several else ""
        ends = _range(found, [(name, c) for name, _, c in there])
        return f"{opening} {where} {ends}{rest}."
    scopes = [_scope(found, contrast) for _, contrast, _ in there]
    same = len(set(scopes)) == 1
    texts = [
        (f"by {words.change(c)} with {suite.label(name)}{'' if same else f', over {scope}'}", c)
        for (name, _, c), scope in zip(there, scopes, strict=True)
    ]
    over = f", over {scopes[0]}," if same else ""
    return f"{opening} {where}{over} {judged(texts, ' and ')}."


def judged(texts: Iterable[tuple[str, Comparison]], joint: str) -> str:
    """Each text with its comparison's judgement; those of one judgement together."""
    by: dict[str, list[str]] = {}
    for text, c in texts:
        by.setdefault(judgement(c), []).append(text)
    return "; ".join(
        f"{joint.join(same)}: {'each ' * (len(same) > 1)}{said}" for said, same in by.items()
    )


def against_baseline(found: Results, name: str | None) -> Contrast | None:
    """The contrast of a configuration with the baseline."""
    return against(found, found.suite.baseline, name)


def against(found: Results, base: str | None, name: str | None) -> Contrast | None:
    """The contrast of two configurations, whichever way round it was declared."""
    for c in found.contrasts:
        if (c.base, c.other) == (base, name):
            return c
        if (c.base, c.other) == (name, base):
            comparison = None if c.comparison is None else c.comparison.turned
            return replace(c, base=c.other, other=c.base, comparison=comparison)
    return None


def judgement(c: Comparison) -> str:
    """The verdict in words."""
    margin = f"±{c.margin * 100:g} %"
    if c.low is None:
        return "inconclusive, for so few blocks give no interval"
    if c.verdict == "differs":
        return f"a significant {_way(c)}"
    if c.verdict == "equivalent":
        change = f" (significant {_way(c)})" if c.both else ""
        return f"equivalent within {margin}{change}"
    if c.atypical and verdict(*c.deciding) == "equivalent":
        return f"inconclusive, for the typical block is not shown to be within {margin}"
    text = f"inconclusive, neither a difference nor equivalence within {margin} is shown"
    if c.contradicted:
        decides = c.interval(1 - c.level)
        limits = words.change_of(c.ratio, decides.low, decides.high).partition(" [")[2]
        text += (
            f" after correction for all comparisons: what decides is the interval of "
            f"{words.given(round(100 * (1 - c.level), 2))} %, [{limits}"
        )
    return text


def _way(c: Comparison) -> str:
    return "increase" if c.ratio > 1 else "decrease"


def _opening(what: str, compared: list[Comparison]) -> str:
    """Who reads no further than the colon must not take a guess for a finding."""
    if all(comparison.verdict == "inconclusive" for comparison in compared):
        return f"What {what} costs is inconclusive: in this suite it"
    return what[0].upper() + what[1:]


def _range(found: Results, there: Sequence[tuple[str, Comparison]]) -> str:
    """The least, the most, and how many of each verdict."""
    by_ratio = sorted(there, key=lambda pair: pair[1].ratio)
    ends = [
        f"{words.change_alone(c.ratio, c.low, c.high)} ({found.suite.label(name)})"
        for name, c in (by_ratio[0], by_ratio[-1])
    ]
    margin = f"±{found.suite.margin * 100:g} %"
    kinds = {
        "significant increase": sum(c.verdict == "differs" and c.ratio > 1 for _, c in there),
        "significant decrease": sum(c.verdict == "differs" and c.ratio <= 1 for _, c in there),
        f"equivalent within {margin}": sum(c.verdict == "equivalent" for _, c in there),
        "inconclusive": sum(c.verdict == "inconclusive" for _, c in there),
    }
    counts = [f"{number} {kind}" for kind, number in kinds.items() if number]
    if len(counts) == 1:
        counts = [f"all {counts[0]}"]
    return f"by {ends[0]} to {ends[1]}: of {len(there)} configurations {', '.join(counts)}"


def over_all(suite: Suite) -> str:
    """What the figure over all workloads is called."""
    if not all(map(suite.counts_overall, suite.workloads)):
        return "Main workloads"
    return "All but idle" if len(counted(suite)) < len(suite.workloads) else "All workloads"


def _scope(found: Results, contrast: Contrast) -> str:
    sides = (contrast.base, contrast.other)
    both = [w for w in counted(found.suite) if all((w, c) in found.suite.planned for c in sides)]
    n = contrast.comparison.n if contrast.comparison else 0
    return extent(len(contrast.workloads), len(both), n)


def extent(used: int, planned: int, blocks: int) -> str:
    """`3 of 5 workloads and 20 blocks`."""
    some = f"{used} of {planned} workloads" if used < planned else count(used, "workload")
    return f"{some} and {count(blocks, 'block')}"


def _lacking(found: Results, names: Sequence[str]) -> str:
    """Why there is no comparison of these configurations with the baseline."""
    suite = found.suite
    if not suite.compared_runs:
        return "no run finished"
    if suite.baseline is None:
        return "the plan has no configuration without encryption to hold it against"
    if not names:
        return "the plan has no such configuration"
    there = set(found.summary["component"])
    if SYSTEM not in there:
        rapl = ", and RAPL does not count the disks" * bool({"package", "package-0"} & there)
        return f"no meter shows the whole system's energy{rapl}"
    done = {run.configuration for run in suite.compared_runs}
    missing = [suite.label(name) for name in [suite.baseline, *names] if name not in done]
    if missing:
        return f"there is no finished run of {' or '.join(missing)}"
    return "no block holds every workload on both sides"
