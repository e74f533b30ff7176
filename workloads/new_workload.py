"""Lays out a new workload: `python -m workloads.new_workload NAME` (`make workload-new NAME=…`).

Writes one file that works at once, and adds its rows to the registry, to the contract test and to
the document of the suites. What is to be replaced is marked FILL_IN; the contract test fails until
none is left.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from workloads import registry

_PACKAGE = Path(__file__).parent
_LONGEST_NAME = 24
# Where a row goes: behind all that each of these finds.
_REGISTRY = re.compile(r"^_TABLE = \{\n(?:    .*\n)*?(?=\}\n)", re.MULTILINE)
_SMALL = re.compile(r"^SMALL: .* = \{\n(?:    .*\n)*?(?=\}\n)", re.MULTILINE)
_FAILING = re.compile(r"^FAILING = \[\n(?:    .*\n)*?(?=\]\n)", re.MULTILINE)
_PARAMETERS = re.compile(r"^## Parameters\n(?:.*\n)*?(?:\|.*\n)+", re.MULTILINE)
_PHASES = re.compile(r"^## Phases and work\n(?:.*\n)*?(?:\|.*\n)+", re.MULTILINE)


class NewWorkloadError(Exception):
    """The workload cannot be laid out; one sentence with the way out."""


def lay_out(name: str, package: Path = _PACKAGE) -> Path:
    """Writes the workload's file and its rows in the others; gives the file.

    `package` is the folder of `workloads`. Raises NewWorkloadError, having changed nothing.
    """
    _check_name(name)
    file = package / f"{name}.py"
    if file.exists():
        raise NewWorkloadError(f"{file} is there already: choose another name.")
    class_name = "".join(word.capitalize() for word in name.split("_"))
    template = (package / "templates" / "workload.txt").read_text(encoding="utf-8")
    texts = {file: template.replace("@NAME@", name).replace("@CLASS@", class_name)}
    parameters = f"| `{name}` | `size_mib` | 16 MiB | size of the file |\n"
    rows = [
        ("registry.py", _REGISTRY, f'    "{name}": "workloads.{name}:{class_name}",\n'),
        ("tests/test_contract.py", _SMALL, f'    "{name}": {{"size_mib": 1}},\n'),
        ("tests/test_contract.py", _FAILING, f'    ("{name}", "dd"),\n'),
        ("suites/README.md", _PARAMETERS, parameters),
        ("suites/README.md", _PHASES, f"| `{name}` | `write`, `read` | bytes, files |\n"),
    ]
    for where, pattern, row in rows:
        path = package / where
        texts[path] = _with_row(path, texts.get(path), pattern, row)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return file


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > _LONGEST_NAME:
        raise NewWorkloadError(
            f"{name!r} cannot name a workload: use at most {_LONGEST_NAME} small letters and "
            "digits, words joined by _, beginning with a letter, as in file_io."
        )
    if keyword.iskeyword(name):
        raise NewWorkloadError(f"{name} is a word of Python's own: choose another name.")
    if name in registry.names():
        raise NewWorkloadError(f"There is a workload called {name} already: choose another name.")


def _with_row(path: Path, text: str | None, pattern: re.Pattern[str], row: str) -> str:
    text = path.read_text(encoding="utf-8") if text is None else text
    found = pattern.search(text)
    if found is None:
        raise NewWorkloadError(f"{path} has no place for a row more: restore it from git.")
    return text[: found.end()] + row + text[found.end() :]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: one name."""
    names = sys.argv[1:] if arguments is None else list(arguments)
    if len(names) != 1:
        print("usage: python -m workloads.new_workload NAME", file=sys.stderr)
        return 2
    name = names[0]
    try:
        file = lay_out(name)
    except NewWorkloadError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"fde: {error.filename} cannot be written ({error.strerror}).", file=sys.stderr)
        return 1
    print(
        f"""{name} is laid out in {file}, and works at once: it writes a file and reads it.
Replace that by what you want measured; what is to be filled in is marked FILL_IN. Its rows are in
  workloads/registry.py            under which name suites find it
  workloads/tests/test_contract.py sizes for its test, and the programs whose failure must be told
  workloads/suites/README.md       parameters, phases and work
Then run
  .venv/bin/python -m pytest workloads -k {name}
until all passes, and name it in a suite. docs/workloads.md says what a workload has to keep."""
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
