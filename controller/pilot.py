"""How many blocks a suite gets from the report of an earlier one (`fde-next/1`, data/README.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from contract import strict_json
from contract.errors import ControllerError
from controller.hold import require_plain

FORMAT = "fde-next/1"
# The deviation that fewer blocks tell is itself too uncertain to plan by.
FEWEST_BLOCKS = 10


@dataclass(frozen=True)
class Pilot:
    """The earlier suite, and the blocks that give its plan's precision."""

    suite_id: str
    blocks: int


def read(folder: Path) -> Pilot:
    """What the suite in `folder` says of the next; ControllerError where it says nothing."""
    require_plain(folder)
    path = folder / "next.json"
    try:
        found = strict_json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ControllerError(
            f"{folder} has no next.json: make report SUITE_DIR={folder} writes it."
        ) from None
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ControllerError(
            f"{path} is not of the format {FORMAT!r}: make report SUITE_DIR={folder} makes it anew."
        )
    blocks, seen = found.get("blocks"), found.get("from_blocks")
    if not isinstance(blocks, int) or not isinstance(seen, int) or seen < FEWEST_BLOCKS:
        raise ControllerError(
            f"{folder} has {seen or 'too few'} blocks to plan by: run {FEWEST_BLOCKS} of them "
            f"first (BLOCKS={FEWEST_BLOCKS}), or say how many you want with BLOCKS=n."
        )
    return Pilot(str(found.get("suite_id", folder.name)), blocks)
