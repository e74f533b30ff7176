"""The disks: how they were preconditioned, and their condition by configuration."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.report import view, words
from analysis.report.texts import say
from analysis.report.view import Blocks, Fields
from analysis.stats.disks import Condition, limit_k, roles, too_warm
from analysis.stats.results import Results
from analysis.suite.records import Suite
from contract import steady_state
from contract.documents import PreconditionDocument
from contract.steady_state import RANGE_LIMIT, SLOPE_LIMIT

SILENT = "not reported"


def disk_table(results: Results) -> Blocks:
    """Return the temperatures of each configuration's disk."""
    if not results.disks:
        return view.paragraph("The runs have no record of the condition of their disks.")
    limit = limit_k(results.suite)
    base = results.suite.label(results.suite.baseline or "")
    within = "" if limit is None else f", flagged beyond ±{limit:g} K"
    columns: Fields[Condition] = {
        "Configuration": lambda condition: results.suite.label(condition.configuration),
        "Disk": lambda condition: condition.disk,
        "°C before (lowest to highest)": lambda condition: _temperature(condition, "before"),
        "°C after (lowest to highest)": lambda condition: _temperature(condition, "after"),
        f"Warmer than under {base}, before; after (K{within})": lambda condition: (
            words.NOTHING
            if condition.configuration == results.suite.baseline
            else "flagged: " * bool(too_warm(condition, limit))
            + (
                "; ".join(f"{k:+.1f}" for k in condition.warmer_k.values()).replace("-", "−")
                or SILENT
            )
        ),
    }
    warm = [condition for condition in results.disks if condition.temperature_c]
    page = view.table_of(say("disks.caption"), warm, columns, words=2, group=True)
    cold = [results.suite.label(c.configuration) for c in results.disks if not c.temperature_c]
    if cold:
        page += view.key("disks.cold", names=", ".join(cold))
    return page


def _temperature(condition: Condition, when: str) -> str:
    return words.span(condition.temperature_c[when]) if when in condition.temperature_c else SILENT


SPECIFICATION = "SNIA SSS PTS 2.0.2"
ACCESSES = {"sequential": "128 KiB in order", "random": "4 KiB anywhere"}


def disks_section(results: Results) -> Blocks:
    """Return a paragraph on the initial state of each disk."""
    return view.join(view.paragraph(text) for text in sentences(results.suite))


def sentences(suite: Suite) -> Iterator[str]:
    """Yield a text on the initial state of each disk."""
    for role in roles(suite):
        if role not in suite.preconditioned:
            yield f"Disk {role} was not preconditioned; {_as_found(suite, role)}."
        elif (record := suite.preconditioned[role]) is None:
            yield f"Disk {role} was to be preconditioned, but has no record of it."
        else:
            sharing = [name for name in suite.configurations if suite.disk_of(name) == role]
            text = _preconditioned(role, record)
            if suite.sed in sharing and len(sharing) > 1:
                text += f" {say('disks.shared', sed=suite.label(suite.sed))}"
            yield text


def _preconditioned(role: str, record: PreconditionDocument) -> str:
    rounds_mib_s = [part.bytes / part.seconds / 2**20 for part in record.written]
    rounds, written = len(rounds_mib_s), sum(p.bytes for p in (*record.filled, *record.written))
    text = (
        f"Disk {role} was preconditioned ({SPECIFICATION}): {_size(record.size_bytes)} "
        f"written over {words.count(len(record.filled), 'time')}, then {rounds} rounds of "
        f"{ACCESSES.get(record.access, record.access)}, {_size(written)} in all"
    )
    if record.interrupted:
        text += f" (after {record.interrupted} interrupted attempts)"
    window = steady_state.window(rounds_mib_s)
    if window is None:
        return f"{text}; too few to show whether it was steady."
    return f"{text}. " + say(
        f"disks.{'steady' if window.steady else 'unsteady'}",
        mean=words.rounded(window.mean),
        first=str(window.first),
        last=str(window.last),
        range=_percent(window.range_share),
        slope=_percent(window.slope_share),
        rounds=str(rounds),
        range_limit=_percent(RANGE_LIMIT),
        slope_limit=_percent(SLOPE_LIMIT),
    )


def _as_found(suite: Suite, role: str) -> str:
    """Return whether an unpreconditioned disk was discarded, else how far it was used."""
    runs = [run for run in suite.runs if suite.disk_of(run.configuration) == role]
    discards = [run.proof.discard for run in runs if run.proof.discard is not None]
    if outcomes := {discard.first_outcome for discard in discards if discard.first_bytes}:
        return say(f"disks.{'discarded' if outcomes == {'discarded'} else 'discard-requested'}")
    failed = {discard.first_outcome for discard in discards} & {"refused", "ignored"}
    written = _number(suite.machine.get(f"disks.{role}.written_bytes"))
    used_percent = _number(suite.machine.get(f"disks.{role}.used_percent"))
    facts = [f"{_size(written)} written in its life"] if written is not None else []
    if used_percent is not None:
        facts.append(f"{words.exact(used_percent)} % of its life used")
    text = f"it was as found: {', '.join(facts) or 'it does not report how much it has written'}"
    if failed:
        text += say("disks.not-discarded", how=" or ".join(sorted(failed)))
    return text


def _number(text: str | None) -> float | None:
    try:
        return number if text and 0 <= (number := float(text)) < 1e30 else None
    except ValueError:
        return None


def _size(count: float) -> str:
    unit, name = (1e12, "TB") if count >= 1e12 else (1e9, "GB") if count >= 1e9 else (1e6, "MB")
    return f"{words.rounded(count / unit)} {name}"


def _percent(share: float) -> str:
    return f"{words.rounded(share * 100)} %"
