"""The meanings of flags on joules, and sentences on them for suites and commands.

It imports neither numpy nor Polars, so that a command's result needs neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from contract.notes import Note

_TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))
FLAGS: Mapping[str, str] = _TEXTS["meanings"]
"""The meaning of each flag, by code. A meter's driver may set others (its `flag_words`)."""
DOUBTS: Mapping[str, str] = _TEXTS["doubts"]
"""Doubts on an assumption of a ratio, by code."""


def meaning(code: str) -> str:
    """Return the meaning of a flag, if it is one of ours."""
    return FLAGS.get(code, "see the driver that sets it")


def reserves(code: str) -> bool:
    """Return whether a flag puts a reservation on conclusions; an unknown flag does."""
    return code not in FLAGS or code in _TEXTS["reserving"]


def flag_note(
    code: str, flagged: int, total: int, subject: str, components: Sequence[str], **facts: Any
) -> Note:
    """Build the note on a flag of `flagged` of the `total` `subject` ("runs of X").

    `coverage` among the facts is the measured share of the one that lacks most.
    """
    where = ", ".join(components)
    sentence = f"{flagged} of {total} {subject} flagged {code} in {where}: {meaning(code)}."
    covered = facts.get("coverage", 1.0)
    if covered < 1:
        sentence += f" At worst, {100 * covered:.0f} % were measured."
    facts = {"flagged": flagged, "of": total, "components": tuple(components), **facts}
    return Note(code, facts, sentence)
