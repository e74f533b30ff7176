"""The load watermark at both ends of a session: played, and written down (data/README.md)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from contract.files import append_line
from contract.journal import boot_id
from contract.plan import Watermark
from instrumentation import watermark as pattern

FILE = "watermark.jsonl"


def play(watermark: Watermark | None, suite_dir: Path, when: str) -> None:
    """Rest, load pattern, rest; then one line in `watermark.jsonl`, on the medium on return.

    `when` is `start` or `end`. Nothing happens where the plan has no watermark. A pattern that
    could not be played costs the suite only its check of the clocks, so the line tells the error.
    Starts and ends alternate within a boot, however often the agent was started in between.
    """
    if watermark is None or _last(suite_dir / FILE) == (boot_id(), when):
        return
    line: dict[str, Any] = {
        "boot_id": boot_id(),
        "when": when,
        "chip_s": watermark.chip_s,
        "pad_s": watermark.pad_s,
    }
    time.sleep(watermark.pad_s)
    try:
        played = pattern.play(pattern.CHIPS, watermark.chip_s)
    except pattern.WatermarkError as error:
        line["error"] = str(error)
    else:
        line |= {"cpus": played.cpus, "spread_ns": played.spread_ns, "edges": played.edges}
    time.sleep(watermark.pad_s)
    append_line(suite_dir / FILE, line)


def _last(path: Path) -> tuple[str, str] | None:
    """Boot and place of the last whole line."""
    for line in reversed(path.read_bytes().splitlines() if path.exists() else []):
        try:
            document = json.loads(line)
            return document["boot_id"], document["when"]
        except (ValueError, KeyError, TypeError):
            continue
    return None
