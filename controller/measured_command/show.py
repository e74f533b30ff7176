"""The result as text for a terminal and as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from analysis.report.words import NOTHING, change_of, number, plus_minus
from contract.measured_command import CommandDocument, CommandResult

MODELLED_WORDS = (
    "These joules are MODELLED by the virtual lab or a simulator: no evidence about a real machine."
)


def progress(line: str) -> None:
    """Print progress on a terminal's last line, which an empty line wipes; nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def text(result: CommandDocument) -> str:
    """All figures of the main component, one line for each other, comparisons and notes."""
    lines = [line for command in result.commands for line in _command(result, command)]
    for each in result.comparisons:
        change = change_of(each.ratio, each.low, each.high)
        lines.append(f"{each.other} against {each.base}: {change}, {each.verdict}")
    if result.blocks > 1:
        lines.append(f"± is half of the 95 % interval of the mean of {result.blocks} runs.")
    if result.origin == "modelled":
        lines.append(MODELLED_WORDS)
    lines += [note.sentence for note in result.notes]
    lines.append(f"Seed of the order: {result.seed}.")
    return "\n".join([*lines, *([] if result.ok else [f"Not complete: {result.message}"])])


def _command(result: CommandDocument, command: CommandResult) -> Iterator[str]:
    main = command.components[result.component]
    known = [j for t in command.trials if (j := t.energy_j[result.component]) is not None]
    yield command.command
    label = result.components[result.component].label
    yield f"  energy      {plus_minus(main.energy_j, 'J')}   {label}{_flagged(result, command)}"
    if result.rest_s:
        rest = plus_minus(main.rest_power_w, "W")
        yield f"  above rest  {plus_minus(main.above_rest_j, 'J')}   rest {rest}"
    yield f"  power       {plus_minus(main.power_w, 'W')}"
    yield f"  time        {plus_minus(command.seconds, 's')}"
    if known:
        yield f"  range       {number(min(known))} … {number(max(known))} J"
    shown = {label}  # a sum of one part is that part
    for name, other in command.components.items():
        if (label := result.components[name].label) not in shown:
            shown.add(label)
            above = f", above rest {plus_minus(other.above_rest_j, 'J')}" * bool(result.rest_s)
            yield f"  {label}: {plus_minus(other.energy_j, 'J')}{above}"
    yield ""


def _flagged(result: CommandDocument, command: CommandResult) -> str:
    """Return the flags of the component that is compared, to print beside its joules."""
    every = (t.flags.get(result.component, ()) for t in command.trials)
    codes = dict.fromkeys(flag for flags in every for flag in flags)
    return f"   flagged: {', '.join(codes)}" if codes else ""


def markdown(result: CommandDocument) -> str:
    """Return a table of commands; its caption has what was measured, how often and the origin."""
    headers = "Command", "Energy", "Above rest", "Power", "Time", "Change of energy", "Verdict"
    rows = [headers, ("---", *["---:"] * 5, "---")]
    against = {each.other: each for each in result.comparisons}
    for command in result.commands:
        main, each = command.components[result.component], against.get(command.command)
        energy = plus_minus(main.energy_j, "J") + " (flagged)" * bool(_flagged(result, command))
        figures = [plus_minus(main.above_rest_j, "J"), plus_minus(main.power_w, "W")]
        change = change_of(each.ratio, each.low, each.high) if each else NOTHING
        verdict = each.verdict or NOTHING if each else NOTHING
        time = plus_minus(command.seconds, "s")
        rows.append((_code(command.command), energy, *figures, time, change, verdict))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    component = result.components[result.component]
    notes = "\n".join(f"- {note.sentence}" for note in result.notes)
    return (
        f"{table}\n\n{component.label}; {component.origin}; mean ± half of the 95 % interval, "
        f"{result.blocks} runs of each in random blocks, seed {result.seed}.\n\n{notes}\n"
    )


def _code(command: str) -> str:
    """Return a command as a cell: neither a bar nor a backtick may end it."""
    flat = " ".join(command.split()).replace("|", "\\|")
    fence = "``" if "`" in flat else "`"
    return f"{fence}{' ' * (fence == '``')}{flat}{' ' * (fence == '``')}{fence}"
