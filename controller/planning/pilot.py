"""The number of blocks that the report of an earlier suite asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analysis.suite import manifest
from contract import schema
from contract.errors import ControllerError
from contract.places import command_line
from contract.schema import COUNT
from contract.strict_json import read_object
from controller.session.suite_folder import require_plain

# The deviation that fewer blocks tell is itself too uncertain to plan by.
PILOT_BLOCKS = 10


@dataclass(frozen=True)
class Pilot:
    """The earlier suite, and the blocks that give its plan's precision."""

    suite_id: str
    blocks: int


@dataclass(frozen=True)
class _Next:
    """next.json: the blocks that a suite's report asks for, and from how many."""

    format: Literal["fde-next/1"]
    suite_id: str
    blocks: COUNT | None = None
    from_blocks: COUNT | None = None


def read_pilot(folder: Path) -> Pilot:
    """Return the number of blocks that the report of the suite in `folder` asks for.

    Raises ControllerError where there is none.
    """
    require_plain(folder)
    path = folder / "next.json"
    report = command_line("report", folder)
    if not path.exists():
        raise ControllerError(f"{folder} has no next.json. Run {report} to write it.")
    try:
        asked = schema.read(_Next, read_object(path))
    except ValueError:
        asked = None
    if asked is None or not manifest.current(path):
        raise ControllerError(
            f"{path} was not made here by this version of a sealed suite. Run {report}."
        )
    if asked.blocks is None or (asked.from_blocks or 0) < PILOT_BLOCKS:
        raise ControllerError(
            f"{folder} has {asked.from_blocks or 'too few'} blocks to plan by. Run {PILOT_BLOCKS} "
            f"first (--blocks {PILOT_BLOCKS}), or pass --blocks N."
        )
    return Pilot(asked.suite_id, asked.blocks)
