"""The result as text for a terminal and as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from analysis.report.words import NOTHING, change_of, number, plus_minus
from contract.measured_command import (
    CommandDocument,
    CommandResult,
    Interval,
)

MEANING = "± is half of the 95 % interval of the mean of {runs} runs."
MODELLED_WORDS = (
    "These joules are MODELLED by the virtual lab or a simulator: no evidence about a real machine."
)


def progress(line: str) -> None:
    """Print progress on a terminal's last line; nothing elsewhere.

    An empty line wipes it.
    """
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def text(result: CommandDocument) -> str:
    """All figures of the main component, one line for each other, comparisons and notes."""
    lines = [line for command in result.commands for line in _command(result, command)]
    if result.comparisons:
        lines += [f"Joules ({_label(result)}) within {result.blocks} blocks:"]
        for each in result.comparisons:
            change = change_of(each.ratio, each.low, each.high)
            lines.append(f"  {each.other} against {each.base}: {change}, {each.verdict_words}")
        lines += [""]
    if result.blocks > 1:
        lines.append(MEANING.format(runs=result.blocks))
    if any(component.origin == "modelled" for component in result.components.values()):
        lines.append(MODELLED_WORDS)
    lines += [note.sentence for note in result.notes]
    lines.append(f"Seed of the order: {result.seed}.")
    if not result.ok:
        lines.append(f"Not complete: {result.message}")
    return "\n".join(lines)


def _label(result: CommandDocument, component: str | None = None) -> str:
    """With the origin, where that is no instrument."""
    chosen = result.components[component or result.component]
    return chosen.label if chosen.origin == "measured" else f"{chosen.label}, {chosen.origin}"


def _command(result: CommandDocument, command: CommandResult) -> Iterator[str]:
    main = command.components[result.component]
    yield command.command
    label = f"{_label(result)}{_flagged(command, result)}"
    yield f"  energy      {_figure(main.energy_j, 'J')}   {label}"
    if result.rest_s:
        rest = _figure(main.rest_power_w, "W")
        yield f"  above rest  {_figure(main.above_rest_j, 'J')}   rest {rest}"
    yield f"  power       {_figure(main.power_w, 'W')}"
    yield (
        f"  time        {_figure(command.seconds, 's')}   user {number(command.user_s.mean)} s, "
        f"system {number(command.system_s.mean)} s"
    )
    energies = [t.energy_j[result.component] for t in command.trials]
    known = [energy for energy in energies if energy is not None]
    if known:
        yield (
            f"  range       {number(min(known))} … {number(max(known))} J   "
            f"{len(known)} run{'s' * (len(known) != 1)}"
        )
    shown = {_label(result)}  # a sum of one part is that part
    for name, other in command.components.items():
        if (label := _label(result, name)) not in shown:
            shown.add(label)
            above = f", above rest {_figure(other.above_rest_j, 'J')}" if result.rest_s > 0 else ""
            yield f"  {label}: {_figure(other.energy_j, 'J')}{above}"
    yield ""


def _flagged(command: CommandResult, result: CommandDocument) -> str:
    """Return the flags of the component that is compared, to print beside its joules."""
    flags = (flag for t in command.trials for flag in t.flags.get(result.component, ()))
    codes = dict.fromkeys(flags)
    return f"   flagged: {', '.join(codes)}" if codes else ""


def _figure(interval: Interval | None, unit: str) -> str:
    return NOTHING if interval is None else plus_minus(interval, unit)


def markdown(result: CommandDocument) -> str:
    """Return a table of commands; its caption has what was measured, how often and the origin."""
    rows = [
        ["Command", "Energy", "Above rest", "Power", "Time", "Change of energy", "Verdict"],
        ["---", *["---:"] * 5, "---"],
    ]
    against = {comparison.other: comparison for comparison in result.comparisons}
    for command in result.commands:
        energy = command.components[result.component]
        compared = against.get(command.command)
        rows.append(
            [
                _code(command.command),
                _figure(energy.energy_j, "J") + " (flagged)" * bool(_flagged(command, result)),
                _figure(energy.above_rest_j, "J"),
                _figure(energy.power_w, "W"),
                _figure(command.seconds, "s"),
                change_of(compared.ratio, compared.low, compared.high) if compared else NOTHING,
                compared.verdict_words if compared else NOTHING,
            ]
        )
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    main = result.components[result.component]
    notes = "\n".join(f"- {note.sentence}" for note in result.notes)
    return (
        f"{table}\n\n{main.label}; {main.origin}; mean ± half of the 95 % interval, "
        f"{result.blocks} runs of each in random blocks, seed {result.seed}.\n\n{notes}\n"
    )


def _code(command: str) -> str:
    """Return a command as a cell: neither a bar nor a backtick may end it."""
    flat = " ".join(command.split()).replace("|", "\\|")
    fence = "``" if "`" in flat else "`"
    return f"{fence}{' ' * (fence == '``')}{flat}{' ' * (fence == '``')}{fence}"
