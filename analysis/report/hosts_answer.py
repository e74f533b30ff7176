"""The answer for several hosts in three sentences, the same on the page and on the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from analysis.report import answer, tables, words
from analysis.stats.contrasts import counted
from analysis.stats.host_effects import LEAST_HOSTS
from analysis.stats.hosts import ALL, Effect, Hosts
from analysis.stats.stats import Comparison
from analysis.suite.origin import MEASURED

WIDTH = 100
NAMED = 3  # so many configurations are told one by one, more of them as a range
DRIVE, SOFTWARE = "encryption in the drive (Opal)", "encryption in software"


def sentences(found: Hosts) -> list[str]:
    """What the drive's encryption costs on these hosts, what software's does, and on others."""
    suite = found.first
    drive = _effects(found, [] if suite.sed is None else [suite.sed])
    software = _effects(found, suite.software)
    return [_costs(found, DRIVE, drive), _costs(found, SOFTWARE, software), _general(found)]


def text(found: Hosts) -> str:
    """For the terminal: the table over all workloads, the answer, and what is not alike."""
    parts = []
    if found.origin != MEASURED:
        parts.append(f"{found.origin.upper()}: {answer.banner(found.origin)}\n")
    headers = ("over all workloads", *found.names, "these hosts", "do they differ")
    rows = [
        [
            f"{found.first.label(e.other)} / {found.first.label(e.base)}",
            *(_change(e.by_host.get(name)) for name in found.names),
            _change(e.these),
            e.hosts,
        ]
        for e in found.overall
    ]
    parts.append(f"{tables.aligned(headers, rows, 1)}\n")
    notes = [f"note: {said}" for said in found.shared.said]
    return "\n".join(
        [*parts, *(textwrap.fill(said, WIDTH) for said in [*sentences(found), *notes])]
    )


def _change(c: Comparison | None) -> str:
    if c is None:
        return words.NOTHING
    return f"{words.change_of(c.ratio, c.low, c.high)} {words.sign(c.verdict, c.ratio, c.both)}"


def _effects(found: Hosts, names: Sequence[str]) -> list[Effect]:
    return [
        effect
        for name in names
        if (effect := found.against_baseline(name)) is not None and effect.these is not None
    ]


def _costs(found: Hosts, what: str, effects: Sequence[Effect]) -> str:
    """Each configuration's mean over these hosts, and whether that mean speaks for each of them."""
    if not effects:
        return f"What {what} costs on these hosts cannot be said: not every host has both sides."
    where = (
        f"On these {len(found.names)} hosts {what} changes the {words.name_of(found.component)}'s "
        f"energy against {found.first.label(found.first.baseline or '')}, over "
        f"{_scope(found, effects)},"
    )
    if len(effects) <= NAMED:
        labelled = what != DRIVE
        return f"{where} {'; '.join(_one(found, effect, labelled) for effect in effects)}."
    by_ratio = sorted((e.these.ratio if e.these else 1.0, e.other, e) for e in effects)
    ends = [
        f"{words.percent(ratio)} ({found.first.label(name)})"
        for ratio, name, _ in (by_ratio[0], by_ratio[-1])
    ]
    counts = {
        word: sum(e.hosts == word for e in effects) for word in ("alike", "differ", "not settled")
    }
    told = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
    return (
        f"{where} by {ends[0]} to {ends[1]} in the mean: of {len(effects)} configurations, as to "
        f"the hosts, {told}."
    )


def _scope(found: Hosts, effects: Sequence[Effect]) -> str:
    """Over how much: the fewest workloads and blocks of all."""
    planned = len(counted(found.first))
    used = min(len(effect.workloads) for effect in effects)
    blocks = min(effect.these.n for effect in effects if effect.these)
    some = f"{used} of {planned} workloads" if used < planned else answer.count(used, "workload")
    return f"{some} and {answer.count(blocks, 'block')} each"


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
            f"{label}by {told}: the hosts surely differ, and their mean, {words.change(c)}, is no "
            "host's own"
        )
    told = ", ".join(f"{name} {change}" for name, change in each)
    alike = {
        "alike": f"the hosts are alike within ±{found.margin * 100:g} % of each other",
        "not settled": "whether the hosts differ is not settled",
    }[effect.hosts]
    return f"{label}by {words.change(c)} in the mean: {answer.judgement(c)}; {alike} ({told})"


def _general(found: Hosts) -> str:
    """What may be said of hosts that were not measured."""
    count = len(found.names)
    if count < LEAST_HOSTS:
        return (
            f"What holds for other hosts cannot be said from {count}: these figures are of "
            f"{' and '.join(found.names)} alone (it takes {LEAST_HOSTS} hosts)."
        )
    names = [name for name in (found.first.sed, *found.first.software) if name is not None]
    there = [
        (effect.other, effect.general)
        for effect in _effects(found, names)
        if effect.general is not None
    ]
    if not there:
        return "What holds for other hosts cannot be said: not every host has both sides."
    if len(there) > NAMED + 1:
        sure = sum(c.verdict != "inconclusive" for _, c in there)
        told = f"{sure} of {len(there)} configurations have a verdict"
    else:
        told = "; ".join(
            f"{found.first.label(name)} {words.change(c)}, {_short(c)}" for name, c in there
        )
    return (
        f"For hosts in general, as far as these {count} were chosen at random from them "
        f"(the host is the unit, not the block): {told}."
    )


def _short(c: Comparison) -> str:
    return words.verdict(c.verdict, c.ratio, c.both)


def heading(effect: Effect, found: Hosts) -> str:
    """Which workload an effect is of."""
    if effect.workload == ALL:
        return answer.over_all(found.first)
    return words.name_of(effect.workload)
