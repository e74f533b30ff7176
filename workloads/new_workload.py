"""Lays out a new workload: `python -m workloads.new_workload NAME` (`make workload-new NAME=…`).

Writes one file that works at once. What is to be replaced is marked FILL_IN; the contract test
fails until none is left.
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


class NewWorkloadError(Exception):
    """The workload cannot be laid out; one sentence with the way out."""


def lay_out(name: str, package: Path = _PACKAGE) -> Path:
    """Writes the workload's file, and gives it.

    `package` is the folder of `workloads`. Raises NewWorkloadError, having changed nothing.
    """
    _check_name(name)
    file = package / f"{name}.py"
    if file.exists():
        raise NewWorkloadError(f"{file} is there already: choose another name.")
    class_name = "".join(word.capitalize() for word in name.split("_"))
    template = (package / "templates" / "workload.txt").read_text(encoding="utf-8")
    file.write_text(
        template.replace("@NAME@", name).replace("@CLASS@", class_name), encoding="utf-8"
    )
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
Replace that by what you want measured; what is to be filled in is marked FILL_IN. Then run
  .venv/bin/python -m pytest workloads -k {name}
until all passes, and name it in a suite. docs/workloads.md says what a workload has to keep."""
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
