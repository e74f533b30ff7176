"""The reference of the commands, from the commands themselves.

`python -m controller.cli.man OUT` writes manual pages (man(7)), fde.1 and one for each command;
`python -m controller.cli.man --markdown` prints docs/commands.md, `--picture` docs/fde-help.svg.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from contract.command_results import COMMANDS
from contract.places import module_command
from controller.cli.app import TABLES, app

PICTURE_COLUMNS = 110
# Rich's picture loads its fonts from the network.
FONT_FACES = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
HEAD = """# Commands

Made from the commands by `python -m controller.cli.man --markdown`: change these, not this page.
`fde COMMAND --help` says the same, `fde --install-completion` completes names in your shell. In a
checkout `.venv/bin/python -m controller` is the same program, and `make` calls it.

![The help page of fde: its commands by subject, examples, exit status, environment](fde-help.svg)

With `--json` a command prints one document alone on standard output, by the schema that is named,
and its text on standard error. Suites are written to `data/suites` in a checkout, elsewhere to
`fde-suites` in the current folder, or where `--out` says.
"""


def commands() -> dict[str, Any]:
    """All commands by name, in the order of the help."""
    found: dict[str, Any] = getattr(typer.main.get_command(app), "commands")  # noqa: B009
    return {name: command for name, command in found.items() if not command.hidden}


def usage(name: str, command: Any) -> str:
    """`fde NAME [OPTIONS] …`"""
    context = typer.Context(command, info_name=name)
    return " ".join(["fde", name, *command.collect_usage_pieces(context)])


def parameters(command: Any) -> Iterator[tuple[str, str]]:
    """What stands on the left and on the right of each argument and option."""
    context = typer.Context(command)
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            yield record


def markdown() -> str:
    """docs/commands.md."""
    text = HEAD
    for title, entries in TABLES.items():
        text += f"\n## {title}\n| | |\n|---|---|\n"
        text += "".join(f"| `{key}` | {said} |\n" for key, said in entries.items())
    for name, command in commands().items():
        text += f"\n## fde {name}\n{command.help}\n\n```\n{usage(name, command)}\n```\n"
        if rows := list(parameters(command)):
            text += "\n| | |\n|---|---|\n"
            cells = ([cell.replace("|", "\\|") for cell in row] for row in rows)
            text += "".join(f"| `{left}` | {right} |\n" for left, right in cells)
        if name in COMMANDS:
            text += f"\n`--json`: [fde-{name}.json](../data/schema/fde-{name}.json)\n"
    return text


def picture() -> str:
    """The help as a terminal shows it, as SVG."""
    width = str(PICTURE_COLUMNS)
    terminal = {"TERMINAL_WIDTH": width, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run(
        module_command("controller", "--help"),
        env={**os.environ, **terminal},
        capture_output=True,
        text=True,
        check=True,
    )
    console = Console(record=True, width=PICTURE_COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(done.stdout.strip("\n")))
    drawn = console.export_svg(title="fde --help", unique_id="fde-help")
    return FONT_FACES.sub("", drawn).replace("Fira Code", "DejaVu Sans Mono") + "\n"


def pages() -> dict[str, str]:
    """The manual pages by file name."""
    known = commands()
    lines = [".SH NAME", "fde \\- measure what full-disk encryption costs in joules"]
    lines += [".SH SYNOPSIS", ".B fde", "COMMAND [OPTIONS] [ARGS]", ".SH DESCRIPTION"]
    lines += [_roff(str(app.info.help)), ".SH COMMANDS"]
    lines += _entries({f"fde-{name}(1)": command.help for name, command in known.items()})
    for title, entries in TABLES.items():
        lines += [f".SH {title.upper()}", *_entries(entries)]
    found = {"fde.1": _page("fde", lines)}
    for name, command in known.items():
        first = str(command.help).rstrip(".")
        lines = [".SH NAME", f"fde\\-{_roff(name)} \\- {_roff(first[0].lower() + first[1:])}"]
        lines += [".SH SYNOPSIS", _roff(usage(name, command))]
        if rows := dict(parameters(command)):
            lines += [".SH OPTIONS", *_entries(rows)]
        lines += [".SH SEE ALSO", ".BR fde (1)"]
        found[f"fde-{name}.1"] = _page(f"fde-{name}", lines)
    return found


def _page(name: str, lines: list[str]) -> str:
    head = f'.TH "{_roff(name.upper())}" 1 "" "fde-energy-testbed" "User commands"'
    return "\n".join([head, *lines]) + "\n"


def _entries(rows: dict[str, str]) -> Iterator[str]:
    for left, right in rows.items():
        yield from (".TP", f"\\fB{_roff(left)}\\fR", _roff(right))


def _roff(text: str) -> str:
    """Text as roff takes it: nothing of it is a request, and a dash is one that can be copied."""
    plain = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{plain}" if plain.startswith(".") else plain


def main(arguments: list[str]) -> int:
    """0 written, 2 wrong usage."""
    if made := {"--markdown": markdown, "--picture": picture}.get(" ".join(arguments)):
        print(made(), end="")
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m controller.cli.man OUT|--markdown|--picture", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
