"""The reference of the commands, from the commands themselves.

`python -m validation.commands_page --markdown` prints docs/commands.md, `--picture`
docs/fde-help.svg.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
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

Made from the commands by `python -m validation.commands_page --markdown`: change these, not this
page. `fde COMMAND --help` prints the same; `fde --install-completion` completes names in a shell.
In a checkout the command is `./fde`; it makes the environment first, and takes the virtual lab's
inventory where the lab is up and none is named.

![The help page of fde: its commands by subject, examples, exit status, environment](fde-help.svg)

With `--json` a command with results prints only one document on standard output, by the schema
named below, and its text on standard error. If it fails, the document has `ok` false and the
`problems`, each with `code`, `facts`, `sentence` and `remedy`.

Suites are written to `data/suites` in a checkout, elsewhere to `fde-suites` in the current folder,
or where `--out` points.
"""


def commands() -> dict[str, Any]:
    """Return all commands by name, in the order of the help."""
    subcommands: dict[str, Any] = getattr(typer.main.get_command(app), "commands")  # noqa: B009
    return {name: command for name, command in subcommands.items() if not command.hidden}


def usage(name: str, command: Any) -> str:
    """Return `fde NAME [OPTIONS] …`."""
    context = typer.Context(command, info_name=name)
    return " ".join(["fde", name, *command.collect_usage_pieces(context)])


def parameters(command: Any) -> Iterator[tuple[str, str]]:
    """Yield name and help of each argument and option."""
    context = typer.Context(command)
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            yield record


def markdown() -> str:
    """Return the text of docs/commands.md."""
    text = HEAD
    for title, entries in TABLES.items():
        text += f"\n## {title}\n| | |\n|---|---|\n"
        text += "".join(f"| `{key}` | {text_of_key} |\n" for key, text_of_key in entries.items())
    for name, command in commands().items():
        text += f"\n## fde {name}\n{command.help}\n\n```\n{usage(name, command)}\n```\n"
        if rows := [row for row in parameters(command) if row[0] != "--json"]:
            text += "\n| | |\n|---|---|\n"
            cells = ([cell.replace("|", "\\|") for cell in row] for row in rows)
            text += "".join(f"| `{name}` | {text} |\n" for name, text in cells)
        if name in COMMANDS:
            text += f"\n`--json`: [fde-{name}.json](../data/schema/fde-{name}.json)\n"
    return text


def picture() -> str:
    """Draw the help as a terminal shows it, as SVG."""
    width = str(PICTURE_COLUMNS)
    terminal = {"TERMINAL_WIDTH": width, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    help_text = subprocess.run(
        module_command("controller", "--help"),
        env={**os.environ, **terminal},
        capture_output=True,
        text=True,
        check=True,
    )
    console = Console(record=True, width=PICTURE_COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(help_text.stdout.strip("\n")))
    drawn = console.export_svg(title="fde --help", unique_id="fde-help")
    return FONT_FACES.sub("", drawn).replace("Fira Code", "DejaVu Sans Mono") + "\n"


def main(arguments: list[str]) -> int:
    """Print the requested document; return 0, or 2 for wrong usage."""
    printed = {"--markdown": markdown, "--picture": picture}.get(" ".join(arguments))
    if printed is None:
        print("usage: python -m validation.commands_page --markdown|--picture", file=sys.stderr)
        return 2
    print(printed(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
