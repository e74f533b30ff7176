"""The number of blocks that the report of an earlier suite asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analysis.suite import manifest
from contract import strict_json
from contract.errors import ControllerError
from contract.places import command_line
from contract.schema import COUNT
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
        raise ControllerError("no-next-suite", folder=folder, report=report)
    asked = strict_json.load(_Next, path)
    if asked is None or not manifest.current(path):
        raise ControllerError("other-version", path=path, report=report)
    if asked.blocks is None or (asked.from_blocks or 0) < PILOT_BLOCKS:
        raise ControllerError(
            "too-few-blocks",
            folder=folder,
            blocks=asked.from_blocks or "too few",
            pilot_blocks=PILOT_BLOCKS,
        )
    return Pilot(asked.suite_id, asked.blocks)
