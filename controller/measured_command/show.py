"""The result of a measurement as text for a terminal, and as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from analysis.report.words import NOTHING, change_of, number, plus_minus
from contract.measured_command import CommandDocument, CommandResult

MODELLED_WORDS = (
    "These joules are MODELLED by the virtual lab or a simulator: no evidence about a real machine."
)


def progress(line: str) -> None:
    """Replace the last line of a terminal by `line`; print nothing without a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def text(result: CommandDocument) -> str:
    """Describe all commands, comparisons and notes."""
    lines = [line for command in result.commands for line in _command_lines(result, command)]
    for contrast in result.comparisons:
        change = change_of(contrast.ratio, contrast.low, contrast.high)
        lines.append(f"{contrast.other} against {contrast.base}: {change}, {contrast.verdict}")
    if result.blocks > 1:
        lines.append(f"± is half of the 95 % interval of the mean of {result.blocks} runs.")
    if result.origin == "modelled":
        lines.append(MODELLED_WORDS)
    lines += [note.sentence for note in result.notes]
    lines.append(f"Seed of the order: {result.seed}.")
    return "\n".join([*lines, *([] if result.ok else [f"Not complete: {result.message}"])])


def _command_lines(result: CommandDocument, command: CommandResult) -> Iterator[str]:
    """Yield the figures of the main component, and a line for each further component."""
    main = command.components[result.component]
    joules = [j for t in command.trials if (j := t.energy_j[result.component]) is not None]
    yield command.command
    label = result.components[result.component].label
    yield f"  energy      {plus_minus(main.energy_j, 'J')}   {label}{_flagged(result, command)}"
    if result.rest_s:
        rest_power = plus_minus(main.rest_power_w, "W")
        yield f"  above rest  {plus_minus(main.above_rest_j, 'J')}   rest {rest_power}"
    yield f"  power       {plus_minus(main.power_w, 'W')}"
    yield f"  time        {plus_minus(command.seconds, 's')}"
    if joules:
        yield f"  range       {number(min(joules))} … {number(max(joules))} J"
    shown = {label}  # a sum of one part has the same label
    for name, component in command.components.items():
        if (label := result.components[name].label) not in shown:
            shown.add(label)
            above = f", above rest {plus_minus(component.above_rest_j, 'J')}"
            yield f"  {label}: {plus_minus(component.energy_j, 'J')}{above * bool(result.rest_s)}"
    yield ""


def _flagged(result: CommandDocument, command: CommandResult) -> str:
    """Describe the flags of the main component, for the line of its joules."""
    codes = dict.fromkeys(f for t in command.trials for f in t.flags.get(result.component, ()))
    return f"   flagged: {', '.join(codes)}" if codes else ""


def markdown(result: CommandDocument) -> str:
    """Return a table of the commands, with a caption of component, origin, runs and notes."""
    headers = "Command", "Energy", "Above rest", "Power", "Time", "Change of energy", "Verdict"
    rows = [headers, ("---", *["---:"] * 5, "---")]
    contrasts = {contrast.other: contrast for contrast in result.comparisons}
    for command in result.commands:
        main, contrast = command.components[result.component], contrasts.get(command.command)
        energy = plus_minus(main.energy_j, "J") + " (flagged)" * bool(_flagged(result, command))
        figures = [plus_minus(main.above_rest_j, "J"), plus_minus(main.power_w, "W")]
        change = verdict = NOTHING
        if contrast:
            change = change_of(contrast.ratio, contrast.low, contrast.high)
            verdict = contrast.verdict or NOTHING
        time = plus_minus(command.seconds, "s")
        rows.append((code_cell(command.command), energy, *figures, time, change, verdict))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    component = result.components[result.component]
    notes = "\n".join(f"- {note.sentence}" for note in result.notes)
    return (
        f"{table}\n\n{component.label}; {component.origin}; mean ± half of the 95 % interval, "
        f"{result.blocks} runs of each in random blocks, seed {result.seed}.\n\n{notes}\n"
    )


def code_cell(command: str) -> str:
    """Format a command as code in a cell of a table, where bars and backticks are special."""
    flat = " ".join(command.split()).replace("|", "\\|")
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"
