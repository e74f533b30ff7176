"""The number of blocks that the report of an earlier suite asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.suite import manifest
from contract.errors import ControllerError
from contract.places import command_line
from contract.strict_json import read_object
from controller.session.suite_folder import require_plain

PILOT_FORMAT = "fde-next/1"
# The deviation that fewer blocks tell is itself too uncertain to plan by.
PILOT_BLOCKS = 10


@dataclass(frozen=True)
class Pilot:
    """The earlier suite, and the blocks that give its plan's precision."""

    suite_id: str
    blocks: int


def read_pilot(folder: Path) -> Pilot:
    """What the suite in `folder` says of the next; ControllerError where it says nothing."""
    require_plain(folder)
    path = folder / "next.json"
    if not path.exists():
        raise ControllerError(
            f"{folder} has no next.json: {command_line('report', folder)} writes it."
        )
    document = read_object(path)
    if document.get("format") != PILOT_FORMAT or not manifest.current(path):
        raise ControllerError(
            f"{path} was not made here by this version of a sealed suite. Run "
            f"{command_line('report', folder)}."
        )
    blocks, from_blocks = document.get("blocks"), document.get("from_blocks")
    if (
        not isinstance(blocks, int)
        or not isinstance(from_blocks, int)
        or from_blocks < PILOT_BLOCKS
    ):
        raise ControllerError(
            f"{folder} has {from_blocks or 'too few'} blocks to plan by. Run {PILOT_BLOCKS} first "
            f"(--blocks {PILOT_BLOCKS}), or pass --blocks N."
        )
    return Pilot(str(document.get("suite_id", folder.name)), blocks)
