"""Checks of what a night relies on: the receivers of its messages and the target's power switch.

Nothing is sent and nothing switched: files, programs and libraries are looked at.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from contract.command_results import CheckOutcome
from contract.errors import AgentError
from contract.places import with_extra
from contract.private import read_secret
from controller.targets.fitness.diagnosis import Scene, failed, passed, problem_of, refused

# The library that a kind needs; the extra `notify` brings them.
_LIBRARIES = {"webhook": "requests", "apprise": "apprise"}


def receivers(scene: Scene) -> Iterator[CheckOutcome]:
    """Check each receiver of messages."""
    if not scene.target.notify.receivers:
        yield passed("No fde_notify: no message is sent while a suite runs.")
    for receiver in scene.target.notify.receivers:
        secrets = [receiver.url_file, receiver.key_file]
        name = f"fde_notify, {receiver.name}"
        yield _usable(name, receiver.kind, secrets, receiver.argv)


def power_switch(scene: Scene) -> Iterator[CheckOutcome]:
    """Check the switch before the target."""
    if (switch := scene.target.power) is None:
        yield passed("No fde_power: a target that hangs waits for its watchdog or for you.")
    else:
        yield _usable("fde_power", switch.kind, [], switch.argv)


def _usable(name: str, kind: str, secrets: Sequence[str], argv: Sequence[str]) -> CheckOutcome:
    library = _LIBRARIES.get(kind)
    if library and find_spec(library) is None:
        sentence = f"{name}: the Python library {library} is missing."
        return failed(sentence, f"Install it: {with_extra('notify')}.")
    if argv and shutil.which(argv[0]) is None:
        sentence = f"{name}: the program {argv[0]} is not found here."
        return failed(sentence, "Install it, or write its whole path.")
    try:
        for path in filter(None, secrets):
            read_secret(Path(path))
    except AgentError as error:
        return refused(problem_of(error), f"Correct {name}.", name=name)
    return passed(f"{name}: the {kind} has what it needs; it was not tried.")
