"""Identify this machine and the progress of the suites on it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from contract import journal
from contract.errors import AgentError

SUITES = Path("/var/lib/fde-testbed/suites")
MACHINE_ID = Path("/etc/machine-id")
# The machine's id must stay private (machine-id(5)); a hash of it for one purpose may be shown.
PURPOSE = b"fde-testbed identity 1"


class IdentityError(AgentError):
    """The machine has no id."""


@dataclass(frozen=True)
class Identity:
    """Output of `python3 -m agent identity`.

    `journal_lines` counts whole lines by suite; null for a damaged journal.
    """

    machine_id: str
    boot_id: str | None = None
    journal_lines: Mapping[str, int | None] = field(default_factory=dict)


def read_identity(suites: Path = SUITES, machine_id: Path = MACHINE_ID) -> Identity:
    """Return the identity of this machine. Raises IdentityError."""
    try:
        machine = machine_id.read_bytes().strip()
    except OSError as error:
        raise IdentityError(
            "identity-unread", machine_id=machine_id, reason=error.strerror
        ) from error
    if not machine:
        raise IdentityError("identity-empty", machine_id=machine_id)
    lines: dict[str, int | None] = {}
    for path in sorted(suites.glob("*/journal.jsonl")):
        try:
            lines[path.parent.name] = len(journal.read(path))
        except journal.JournalError:
            lines[path.parent.name] = None
    return Identity(hashlib.sha256(machine + PURPOSE).hexdigest(), journal.boot_id(), lines)
