"""The sections on trust and provenance, and where the time went."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from analysis import manifest, markup, readers, trust, words
from analysis.markup import Html
from analysis.records import Meter, Suite
from analysis.results import Results

FLAGS = {
    "gap-filled": "samples are missing in the phase; filled with the mean power of the rest",
    "no-samples": "the meter has no sample in the phase: no figure",
    "no-clock": "no clock reading for that boot of the target: the meter cannot be placed",
    "wrap-corrected": "the counter went round once and was corrected",
    "possible-double-wrap": "the counter may have gone round more often than can be seen",
    "read-failed": "the counter could not be read: no figure",
    "unknown-range": "the counter's range is unknown: a wrap could not be corrected",
    "beyond-power-bound": "more energy than the zone can draw in that time; a fall gives no figure",
    "counter-reopened": "the counter was gone for a while; what it missed is unknown",
    "mirror": "the zone shows the counter of another die: never add both",
    "incomplete": "a phase has no figure, so the run has no sum",
}
MACHINE = {
    "os_release": "System",
    "uname": "Kernel",
    "cpu.model": "Processor",
    "versions.cryptsetup": "cryptsetup",
}
TIMES = {
    "measuring_s": "Measuring (phases and tails)",
    "preparing_s": "Preparing and settling",
    "switching_s": "Switching configurations",
    "proving_s": "Proving configurations",
    "start_s": "Starting",
    "fetch_s": "Fetching",
    "other_s": "Other",
    "wall_s": "All",
}


def trust_section(found: Results) -> Html:
    """Agreement of the readers, clock, coverage, flags, checks, void runs."""
    suite = found.suite
    said = [
        *(_readers(agreement) for agreement in readers.agreements(suite)),
        _clock(trust.clock(suite, found.clock)),
        "The storage configuration was proven to be the planned one in "
        f"{trust.proven(suite.runs)} of {len(suite.runs)} finished runs.",
        _seal(suite),
        *(_accuracy(meter) for meter in suite.meters),
        *_whole(trust.whole(found.energy)),
    ]
    page = markup.bullets(said)
    page += markup.table(
        "The meter's coverage of the measured phases",
        ["Meter", "Channel", "Phases", "Mean coverage", "Worst", "Runs with gaps"],
        [
            [
                m.source,
                words.name_of(m.component),
                str(m.phases),
                _share(m.mean_coverage),
                _share(m.worst_coverage),
                str(len(m.gaps)),
            ]
            for m in trust.meters(suite, found.energy)
        ],
        words=2,
    )
    page += markup.table(
        "Flags on phases",
        ["Flag", "Meaning", "Rows"],
        [[flag, FLAGS.get(flag, ""), str(n)] for flag, n in trust.flagged(found.energy)],
        words=2,
    )
    page += markup.table(
        "Checks that were not passed in finished runs",
        ["Check", "Message", "Runs"],
        [[name, message, str(n)] for name, message, n in trust.warnings(suite)],
        words=2,
    )
    page += markup.table(
        "Void runs: they count for nothing",
        ["Run", "Reason"],
        [[v.run_id, v.reason] for v in suite.void],
        words=2,
    )
    return page if suite.void else page + markup.paragraph("No run is void.")


def _share(value: float | None) -> str:
    return words.NOTHING if value is None else f"{value * 100:.2f} %"


def _readers(found: readers.Agreement) -> str:
    pair = f"{found.reader} and our own RAPL reader"
    more = f" {found.wrapped} more could not be compared (wrapped or unread)." * bool(found.wrapped)
    if found.failed:
        more += f" {found.reader} gave no figure {found.failed} times: {' '.join(found.reasons)}"
    if found.compared == 0 or found.worst_uj is None:
        return f"{pair} could not be compared.{more}"
    share = (
        f", {words.rounded(found.worst_share * 100)} % at worst"
        if found.worst_share is not None
        else ""
    )
    return (
        f"{pair} differ by at most {words.rounded(found.worst_uj / 1e6)} J{share}, over "
        f"{found.compared} figures of whole runs.{_why(found)}{more}"
    )


def _why(found: readers.Agreement) -> str:
    if found.apart_ms is None:
        return ""
    most = f" They read at most {words.rounded(found.apart_ms)} ms apart"
    if found.unexplained == 0:
        return f"{most}, which explains it."
    return f"{most}, which explains all but {found.unexplained}: look for a second cause."


def _whole(found: trust.WholeAgainstParts) -> Iterator[str]:
    """Two sources that cannot both be right, or a sentence that they can."""
    if not found.runs or found.worst_ratio is None:
        return
    if not found.exceeding:
        yield (
            "CPU package and RAM (RAPL) never took more than the whole system (meter): "
            f"{words.rounded(found.worst_ratio * 100)} % of it at most."
        )
        return
    why = (
        "RAPL is modelled from the time that the guest believes it was busy, the meter from the "
        "CPU time that the host gave it; a host with too few free cores stretches the first alone."
        if found.modelled
        else "That cannot be: check the meter's channels, its scale and where it is wired."
    )
    yield (
        f"In {found.exceeding} of {found.runs} runs CPU package and RAM (RAPL) took more than the "
        f"whole system (meter), {words.rounded(found.worst_ratio)} times at worst. {why}"
    )


def _clock(found: trust.ClockTrust) -> str:
    if found.bound_ms is None:
        return (
            "There is no usable clock reading: the target's phases cannot be placed on the meter's "
            "time."
        )
    missing = f" {found.runs_without} runs have none." if found.runs_without else ""
    return (
        f"The target's clock is known to within {words.rounded(found.bound_ms)} ms at every edge "
        f"of a phase ({found.readings} round trips, {found.boots} boot{'s' * (found.boots != 1)}, "
        f"skew {words.rounded(found.skew_ppm)} ppm).{missing}"
    )


def _seal(suite: Suite) -> str:
    if not suite.sealed:
        return "The files are not sealed: nothing proves that they are what was measured."
    if not manifest.check(suite.folder).problems:
        return "All files have the SHA-256 sums of their seal."
    return "Some files are not those that were sealed (named above): trust nothing made from them."


def _accuracy(meter: Meter) -> str:
    relative = meter.accuracy.get("relative_limit")
    if not isinstance(relative, int | float):
        return f"The accuracy of meter {meter.name} is not known: its joules have no type B figure."
    return (
        f"Meter {meter.name} ({meter.kind}) is accurate to ±{words.given(relative * 100)} % of "
        f"the reading, a standard uncertainty of {words.rounded(relative * 100 / 3**0.5)} %. That "
        "error is common to all configurations: it cancels in ratios, but not in joules or money, "
        "and stands in no interval here."
    )


def provenance_section(found: Results) -> Html:
    """Plan, machine, packages, changes during the suite, time."""
    suite = found.suite
    plan = suite.plan
    before = dict(_flat(suite.before))
    facts = [
        ["Suite", str(plan.get("suite_id", ""))],
        ["Scale", str(plan.get("scale", ""))],
        ["Plan, SHA-256", str(plan.get("sha256", ""))],
        ["Seed of the order", str(plan.get("seed", ""))],
        ["Origin at best", str(plan.get("origin", ""))],
    ]
    facts += [[label, before[key]] for key, label in MACHINE.items() if key in before]
    short = [[key, text] for key, text in before.items() if len(text) <= 120]
    after = dict(_flat(suite.after))
    changed = [
        [key, before.get(key, words.NOTHING), after.get(key, words.NOTHING)]
        for key in sorted(before.keys() | after.keys())
        if after and before.get(key) != after.get(key)
    ]
    page = _time(suite.timing)
    page += markup.table("Plan and machine", ["What", "Value"], facts, words=2)
    page += markup.folded(
        f"Machine and packages before the first run ({len(before)} entries)",
        markup.table("Before the first run", ["What", "Value"], short, words=2),
    )
    page += markup.folded(
        f"What was different after the last run ({len(changed)} entries)",
        markup.table("Before and after", ["What", "Before", "After"], changed, words=3)
        if changed
        else markup.paragraph("Nothing, or no record of it."),
    )
    text = json.dumps(dict(plan), indent=1, ensure_ascii=False)
    return page + markup.folded("The whole plan", markup.preformatted(text))


def _time(timing: Mapping[str, Any]) -> Html:
    wall = timing.get("wall_s")
    rows = [
        [label, words.number(float(timing[key]), 0), _part(timing[key], wall)]
        for key, label in TIMES.items()
        if isinstance(timing.get(key), int | float)
    ]
    return markup.table("Where the time went", ["Step", "Seconds", "Share"], rows)


def _part(value: float, wall: Any) -> str:
    return f"{value / wall * 100:.0f} %" if isinstance(wall, int | float) and wall > 0 else ""


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of nested records as `a.b.c` and text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        yield path, ", ".join(v if isinstance(v, str) else json.dumps(v) for v in value)
    elif value is not None:
        yield path, str(value)
