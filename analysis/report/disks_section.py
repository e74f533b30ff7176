"""The disks: the state they were brought to, and their condition by configuration."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.report import view, words
from analysis.report.view import Blocks, Fields
from analysis.stats.disks import Condition, limit_k, roles, too_warm
from analysis.stats.results import Results
from analysis.suite.preconditioned import Preconditioned
from analysis.suite.records import Suite
from contract.steady_state import RANGE_LIMIT, SLOPE_LIMIT

SILENT = "not reported"


def disk_table(results: Results) -> Blocks:
    """By configuration: temperatures, what was counted during its runs, and the disk's settings."""
    if not results.disks:
        return view.paragraph("The runs do not record the condition of their disks.")
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
            else _warmer(condition, limit)
        ),
        "Throttled in runs": lambda condition: _counted(condition, "throttled"),
        "Written in runs (GB)": lambda condition: _counted(condition, "written_bytes", 1e9),
        "Media errors in runs": lambda condition: _counted(condition, "errors"),
        "Link and queue": lambda condition: ", then ".join(
            condition.settings.get("link", (SILENT,))
        ),
        "Write cache": lambda condition: ", then ".join(
            condition.settings.get("write_cache", (SILENT,))
        ),
        "Spare, first; last (%)": lambda condition: _life(condition, "spare_percent"),
        "Life used, first; last (%)": lambda condition: _life(condition, "used_percent"),
    }
    what = (
        "The disk under each configuration, by its own account before and after the finished runs"
    )
    page = view.table_of(what, results.disks, columns, words=2, origin=results.origin, group=True)
    cold = [results.suite.label(c.configuration) for c in results.disks if not c.temperature_c]
    if cold:
        page += view.paragraph(
            f"No temperature is reported by the disk under {', '.join(cold)}: whether it stayed as "
            "warm as at first was not checked.",
            "key",
        )
    return page


def _temperature(condition: Condition, when: str) -> str:
    return words.span(condition.temperature_c[when]) if when in condition.temperature_c else SILENT


def _warmer(condition: Condition, limit: float | None) -> str:
    flag = "flagged: " if too_warm(condition, limit) else ""
    warmer = [f"{k:+.1f}".replace("-", "−") for k in condition.warmer_k.values()]
    return flag + "; ".join(warmer) if warmer else SILENT


def _counted(condition: Condition, what: str, unit: float = 1.0) -> str:
    return words.rounded(condition.counted[what] / unit) if what in condition.counted else SILENT


def _life(condition: Condition, what: str) -> str:
    return "; ".join(map(words.exact, condition.life[what])) if what in condition.life else SILENT


SPECIFICATION = "SNIA SSS PTS 2.0.2"
ACCESSES = {"sequential": "128 KiB in order", "random": "4 KiB anywhere"}


def disks_section(results: Results) -> Blocks:
    """Return in which state each disk was."""
    return view.join(view.paragraph(text) for text in sentences(results.suite))


def sentences(suite: Suite) -> Iterator[str]:
    """In which state each disk was."""
    for role in roles(suite):
        if role not in suite.preconditioned:
            yield f"Disk {role} was not preconditioned; {_as_found(suite, role)}."
        elif (done := suite.preconditioned[role]) is None:
            yield f"Disk {role} was to be preconditioned, and there is no record that it was."
        else:
            yield _preconditioned(done) + _made_anew(suite, role)


def _preconditioned(done: Preconditioned) -> str:
    rounds = len(done.rounds_mib_s)
    text = (
        f"Disk {done.role} was preconditioned ({SPECIFICATION}): {_size(done.extent_bytes)} "
        f"written over {words.count(done.passes, 'time')}, then {rounds} rounds of "
        f"{ACCESSES.get(done.access, done.access)}, {_size(done.written_bytes)} in all"
    )
    if done.interrupted:
        text += f" (it was begun {done.interrupted} more times, and interrupted)"
    window = done.window
    if window is None:
        return f"{text}; they are too few to show whether it was steady."
    where = (
        f"{words.rounded(window.mean)} MiB/s in rounds {window.first} to {window.last}, "
        f"range {_percent(window.range_share)} of that (at most {_percent(RANGE_LIMIT)}), change "
        f"along the best line {_percent(window.slope_share)} (at most {_percent(SLOPE_LIMIT)})"
    )
    if window.steady:
        return f"{text}. It was steady: {where}."
    return (
        f"{text}. Steady state was not reached in {rounds} rounds: {where}. Its runs count all "
        "the same."
    )


def _as_found(suite: Suite, role: str) -> str:
    """Return whether it was discarded, else how far it was used."""
    runs = [run for run in suite.runs if suite.disk_of(run.configuration) == role]
    discards = [run.proof.discard for run in runs if run.proof.discard is not None]
    outcomes = {discard.first_outcome for discard in discards if discard.first_bytes}
    if outcomes:
        if outcomes == {"discarded"}:
            return "its whole extent was discarded each time before a configuration was made"
        return (
            "a discard of its whole extent was requested each time before a configuration was "
            "made; the disk does not report whether it was done"
        )
    failed = {discard.first_outcome for discard in discards} & {"refused", "ignored"}
    written = _number(suite.machine.get(f"disks.{role}.written_bytes"))
    used = _number(suite.machine.get(f"disks.{role}.used_percent"))
    facts = [f"{_size(written)} written in its life"] if written is not None else []
    facts += [f"{words.exact(used)} % of its life used"] if used is not None else []
    text = f"it was as found: {', '.join(facts) or 'it does not report what it has written so far'}"
    if failed:
        text += (
            f". It {' or '.join(sorted(failed))} the discard before each configuration, so each "
            "began on what the one before it had left"
        )
    return text


def _made_anew(suite: Suite, role: str) -> str:
    """Return the limit of preconditioning for a range that is made again in the suite."""
    names = [name for name in suite.configurations if suite.disk_of(name) == role]
    if suite.sed not in names or len(names) < 2:
        return ""
    return (
        f" {suite.label(suite.sed)} shares it with others: its range is then made again each time, "
        "which the drive may take for a discard of the extent."
    )


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
