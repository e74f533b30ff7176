"""Internal errors, one at each line that entering and leaving a configuration takes.

`python -m agent.tests.injections TARGET SECRETS CONFIGURATION` does it on a target and prints the
lines after which a mapping was left or a range stood open, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from agent.storage import mapping, opal, secrets, stack
from agent.storage.stack import Stack, bare_after_internal_error
from contract import plan

Line = tuple[str, int]
FILES = {stack.__file__}


class InjectedError(Exception):
    """Nothing that the code knows."""


def lines_of(action: Callable[[], object], files: set[str]) -> list[Line]:
    """Every line of these files that an action comes to, in order, each once."""
    lines: dict[Line, None] = {}
    _traced(action, files, lines.setdefault)
    return list(lines)


def fail_at(action: Callable[[], object], line: Line) -> None:
    """Do it with an error at a line, the first time that it comes there."""
    waiting = [line]

    def meet(reached: Line) -> None:
        if reached in waiting:
            waiting.clear()
            raise InjectedError(str(reached))

    with suppress(InjectedError):
        _traced(action, {line[0]}, meet)


def _traced(action: Callable[[], object], files: set[str], meet: Callable[[Line], object]) -> None:
    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            meet((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)


def enter_and_leave(storage: Stack, name: str) -> None:
    """As the agent's commands do it."""
    with bare_after_internal_error(storage):
        storage.enter(name)
        storage.leave()


def main(target: Path, secret: Path, name: str) -> list[str]:
    storage = Stack(plan.load_target(target), secrets.load(secret))
    open_lines = []
    for line in lines_of(lambda: enter_and_leave(storage, name), FILES):
        fail_at(lambda: enter_and_leave(storage, name), line)
        ranges = [opal.range_found(place, storage.secrets) for place in storage._locking()]
        if mapping.devices() or any(r and r.state != "locked" and not r.off for r in ranges):
            open_lines.append(f"{line[0]}:{line[1]}")
            storage.leave()
    return open_lines


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])))
