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
from controller.targets.doctor.diagnosis import Scene, failed, passed, problem_of, refused

# The library that a kind needs, and the extra that brings it.
_LIBRARIES = {
    "webhook": ("requests", "notify"),
    "apprise": ("apprise", "notify"),
}


def receivers(scene: Scene) -> Iterator[CheckOutcome]:
    """Check each receiver of messages."""
    if not scene.target.notify.receivers:
        yield passed("no-receivers")
    for receiver in scene.target.notify.receivers:
        secrets = [receiver.url_file, receiver.key_file]
        name = f"fde_notify, {receiver.name}"
        yield _usable(name, receiver.kind, secrets, receiver.argv)


def power_switch(scene: Scene) -> Iterator[CheckOutcome]:
    """Check the switch before the target."""
    if (switch := scene.target.power) is None:
        yield passed("no-power-switch")
    else:
        yield _usable("fde_power", switch.kind, [], switch.argv)


def _usable(name: str, kind: str, secrets: Sequence[str], argv: Sequence[str]) -> CheckOutcome:
    library, extra = _LIBRARIES.get(kind, ("", ""))
    if library and find_spec(library) is None:
        return failed("library-missing", name=name, library=library, install=with_extra(extra))
    if argv and shutil.which(argv[0]) is None:
        return failed("program-missing", name=name, program=argv[0])
    try:
        for path in filter(None, secrets):
            read_secret(Path(path))
    except AgentError as error:
        return refused(problem_of(error), f"Correct {name}.", name=name)
    return passed("unattended-ready", name=name, kind=kind)
