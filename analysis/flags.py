"""What flags on joules mean: the one place that makes sentences of them, for suites and commands.

Free of numpy and Polars, so that a command's result needs neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from contract.notes import Note

_TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))
FLAGS: Mapping[str, str] = _TEXTS["meanings"]
"""What each flag means, by code. A meter's driver may set others (its `flag_words`)."""
DOUBTS: Mapping[str, str] = _TEXTS["doubts"]
"""What contradicts an assumption of a ratio, by code."""


def meaning(code: str) -> str:
    """Return what a flag means, if it is one of ours."""
    return FLAGS.get(code, "see the driver that sets it")


def reserves(code: str) -> bool:
    """Whether conclusions are given with a reservation for it; an unknown flag counts as such."""
    return code not in FLAGS or code in _TEXTS["reserving"]


def flag_note(
    code: str, flagged: int, total: int, what: str, components: Sequence[str], **facts: Any
) -> Note:
    """Build the note on one flag: on so many of all `what` ("runs of X"), in which components.

    `coverage` among the facts is the share that was measured of the one with most missing.
    """
    where = ", ".join(components)
    sentence = f"{flagged} of {total} {what} flagged {code} in {where}: {meaning(code)}."
    covered = facts.get("coverage", 1.0)
    if covered < 1:
        sentence += f" At worst, {100 * covered:.0f} % were measured."
    facts = {"flagged": flagged, "of": total, "components": tuple(components), **facts}
    return Note(code, facts, sentence)
