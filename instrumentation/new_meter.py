"""Lays out a new meter: `python -m instrumentation.new_meter NAME` (`make meter-new NAME=…`).

Writes a driver, a simulator and a test that work at once with a small protocol of their own, and
says what to do next. What is to be replaced is marked FILL_IN; the contract test fails until none
is left.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from contract.names import sentence
from instrumentation.meters import registry

_PACKAGE = Path(__file__).parent
_LONGEST_NAME = 16
_IMPORTS = re.compile(r"^(?:from instrumentation\..*\n)+", re.MULTILINE)


class NewMeterError(Exception):
    """The meter cannot be laid out; one sentence with the way out."""


def lay_out(kind: str, package: Path = _PACKAGE) -> tuple[Path, ...]:
    """Writes the three files of a meter, and gives them.

    `package` is the folder of `instrumentation`. Raises NewMeterError, having
    changed nothing.
    """
    _check_name(kind)
    class_name = "".join(word.capitalize() for word in kind.split("_"))
    files = {
        package / "meters" / f"{kind}.py": "meter",
        package / "simulators" / f"{kind}.py": "simulator",
        package / "tests" / f"test_{kind}.py": "test",
    }
    for path in files:
        if path.exists():
            raise NewMeterError(f"{path} is there already: choose another name.")
    texts = {}
    for path, template in files.items():
        text = (package / "templates" / f"{template}.txt").read_text(encoding="utf-8")
        texts[path] = _in_order(text.replace("@KIND@", kind).replace("@CLASS@", class_name))
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return tuple(files)


def _check_name(kind: str) -> None:
    words = "small letters and digits, words joined by _, beginning with a letter"
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", kind) or len(kind) > _LONGEST_NAME:
        raise NewMeterError(
            f"{kind!r} cannot name a meter: use at most {_LONGEST_NAME} {words}, as in wt310."
        )
    if keyword.iskeyword(kind):
        raise NewMeterError(f"{kind} is a word of Python's own: choose another name.")
    if kind in registry.kinds():
        raise NewMeterError(f"There is a meter called {kind} already: choose another name.")


def _in_order(text: str) -> str:
    """Our own imports sorted, for where the new name belongs depends on it."""
    return _IMPORTS.sub(lambda found: "".join(sorted(found[0].splitlines(keepends=True))), text)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: one name."""
    names = sys.argv[1:] if arguments is None else list(arguments)
    if len(names) != 1:
        print("usage: python -m instrumentation.new_meter NAME", file=sys.stderr)
        return 2
    kind = names[0]
    try:
        driver, simulator, test = lay_out(kind)
    except NewMeterError as error:
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"fde: {error.filename} cannot be written ({error.strerror}).", file=sys.stderr)
        return 1
    print(
        f"""{kind} is laid out. It works at once, with a protocol that you replace by the meter's
own:
  1. {driver}: what the meter sends, its accuracy and where that is stated
  2. {simulator}: the same from the meter's side, with its own encoding
  3. {test}: records from its description or from a real meter
Everything to be filled in is marked FILL_IN. Then run
  .venv/bin/python -m pytest instrumentation -k {kind}
until all passes, and describe the meter in docs/hardware.md."""
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
