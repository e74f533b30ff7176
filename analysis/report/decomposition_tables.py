"""Is it time or power, what would rest have taken, and what does the tail hold."""

from __future__ import annotations

import polars as pl

from analysis.report import view, words
from analysis.report.tables import COMPONENTS
from analysis.report.view import Blocks, Fields
from analysis.stats.contrasts import IDLE
from analysis.stats.decomposition import Decomposition, IdleShare, decompose, idle_share, tail
from analysis.stats.results import Results
from analysis.stats.stats import Estimate
from analysis.stats.summary import joint_origin

MOST = 0.8  # a part that explains this much of the difference makes the difference
TOLD = 4  # so many configurations have a sentence; the table has them all

MORALS = {  # by what makes the difference, and whether it is more
    ("time", True): "Time makes the difference: working longer, it rests later (race to sleep).",
    ("time", False): "Time makes the difference: done sooner, it rests sooner (race to sleep).",
    ("power", True): "Power makes the difference: it draws more, not longer.",
    ("power", False): "Power makes the difference: it draws less, not shorter.",
    ("both", True): "Both have their part: it takes longer, and draws more.",
    ("both", False): "Both have their part: it is done sooner, and draws less.",
}
AGAINST = {  # by whether it takes longer, and whether it takes more joules
    (True, True): "It draws less, but for so much longer that it takes more (race to sleep).",
    (True, False): "It takes longer, but draws so much less that it takes less all the same.",
    (False, True): "It is done sooner, but draws so much more that it takes more all the same.",
    (False, False): "It draws more, but is done so much sooner that it takes less (race to sleep).",
}


def tables(found: Results, energy: pl.DataFrame, workload: str, component: str) -> Blocks:
    """Sentences on race to sleep, the split of each difference, and rest and tail."""
    splits = _splits(found, energy, workload, component)
    columns: Fields[Decomposition] = {
        "Configuration": lambda split: found.suite.label(split.other),
        **SPLIT,
        "Longer (s)": lambda split: words.signed(split.delta_s),
        **CAUSE,
    }
    caption = (
        f"{words.name_of(workload)}: is it time or power? Difference to {found.suite.base_label} "
        f"in the {words.name_of(component)}'s energy a run"
    )
    page = view.bullets(sentences(found, splits))
    page += view.table_of(caption, splits, columns, origin=joint_origin(energy))
    parts = _parts(found, energy, workload, component)
    page += view.folded("Time or power in each component", parts)
    if workload != IDLE and IDLE in set(found.energy["workload"]):
        rest = _rest(found, workload, component)
        page += view.folded("What the machine at rest would take, and the tail", rest)
    return page


def _splits(
    found: Results, energy: pl.DataFrame, workload: str, component: str
) -> list[Decomposition]:
    """Each configuration against the baseline, where both have the component."""
    return [
        split
        for name in found.suite.configurations
        if (base := found.suite.base_of(name)) not in (None, name)
        and (split := decompose(energy, workload, base or "", name, component))
    ]


def _parts(found: Results, energy: pl.DataFrame, workload: str, component: str) -> Blocks:
    """The same split of every other component; times are those of the whole run."""
    others = [c for c in energy["component"].unique().sort() if c != component]
    others.sort(key=lambda c: COMPONENTS.index(c) if c in COMPONENTS else len(COMPONENTS))
    rows = [split for part in others for split in _splits(found, energy, workload, part)]
    columns: Fields[Decomposition] = {
        "Component": lambda split: words.name_of(split.component),
        "Configuration": lambda split: found.suite.label(split.other),
        **SPLIT,
        **CAUSE,
    }
    base, origin = found.suite.base_label, joint_origin(energy)
    caption = f"{words.name_of(workload)}: difference to {base} in each component's energy a run"
    return view.table_of(caption, rows, columns, words=2, origin=origin, group=True)


def sentences(found: Results, splits: list[Decomposition]) -> list[str]:
    """What is sure of the differences in joules, and whether time or power makes them."""
    sure = [split for split in splits if _sure(split.delta_j)]
    said = [_sentence(found, split) for split in sure[:TOLD]]
    if len(sure) > TOLD:
        said.append(f"For {len(sure) - TOLD} more configurations see the table.")
    open_ones = [found.suite.label(s.other) for s in splits if not _sure(s.delta_j)]
    if open_ones:
        many = len(open_ones) > TOLD
        names = f"{len(open_ones)} configurations" if many else ", ".join(open_ones)
        why = (
            "the interval of the difference in joules holds 0"
            if any(s.n > 1 for s in splits)
            else "one block gives no interval"
        )
        said.append(f"{names}: {why}, so there is no difference to explain.")
    return said


def _sentence(found: Results, split: Decomposition) -> str:
    much = words.plus_minus(_size(split.delta_j), "J")
    return (
        f"{found.suite.label(split.other)} takes {much} "
        f"{'more' if split.delta_j.mean > 0 else 'less'} a run: "
        f"{words.signed(split.by_time_j, 'J')} by time ({words.signed(split.delta_s, 's')}) and "
        f"{words.signed(split.by_power_j, 'J')} by power ({words.signed(split.delta_w, 'W')}). "
        f"{_moral(split)}"
    )


def _moral(split: Decomposition) -> str:
    """What the split says, as a sentence for who reads no tables."""
    what, more = makes(split), split.delta_j.mean > 0
    if what == "time against power":
        return AGAINST[split.delta_s.mean > 0, more]
    if not what and _sure(split.by_power_j):
        return "Power has a significant part; whether time has is inconclusive."
    if not what and _sure(split.by_time_j):
        return "Time has a significant part; whether power has is inconclusive."
    return MORALS.get((what, more), "Which of the two causes it is inconclusive.")


def makes(split: Decomposition) -> str:
    """`time`, `power`, `both`, `time against power`, or empty where it is inconclusive."""
    if not _sure(split.delta_j):
        return ""
    time, power = split.by_time_j, split.by_power_j
    if _sure(time) and _sure(power) and time.mean * power.mean < 0:
        return "time against power"
    share = time.mean / split.delta_j.mean
    if _sure(time) and share >= MOST:
        return "time"
    if _sure(power) and share <= 1 - MOST:
        return "power"
    return "both" if _sure(time) and _sure(power) else ""


SPLIT: Fields[Decomposition] = {
    "Difference (J)": lambda split: words.signed(split.delta_j),
    "by time (J)": lambda split: words.signed(split.by_time_j),
    "by power (J)": lambda split: words.signed(split.by_power_j),
}
CAUSE: Fields[Decomposition] = {
    "More power (W)": lambda split: words.signed(split.delta_w),
    "What makes it": lambda split: makes(split) or "inconclusive",
}


def _rest(found: Results, workload: str, component: str) -> Blocks:
    """Rest is the workload idle of the same configuration and block."""
    here = found.energy.filter(pl.col("workload").is_in([workload, IDLE]))
    rows = [
        (name, share)
        for name in found.suite.configurations
        if (share := idle_share(here, workload, name, component)) is not None
    ]
    columns: Fields[tuple[str, IdleShare]] = {
        "Configuration": lambda of: found.suite.label(of[0]),
        "Rest's share (%)": lambda of: words.plus_minus(of[1].share.scaled(100)),
        "Above rest (J)": lambda of: words.plus_minus(of[1].above_j),
        "Tail above rest (J)": lambda of: words.signed(tail(here, workload, of[0], component)),
    }
    caption = f"{words.name_of(workload)}: beside the machine at rest (workload idle, same block)"
    return view.table_of(caption, rows, columns, origin=joint_origin(here))


def _sure(value: Estimate) -> bool:
    return value.low is not None and not value.contains(0)


def _size(value: Estimate) -> Estimate:
    if value.mean >= 0 or value.low is None or value.high is None:
        return Estimate(value.n, abs(value.mean), value.low, value.high)
    return Estimate(value.n, -value.mean, -value.high, -value.low)
