"""The load watermark at both ends of a session: played, and written down (data/README.md)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from agent.files import sync_folder
from agent.journal import boot_id
from agent.plan import Watermark
from instrumentation import watermark as pattern

FILE = "watermark.jsonl"


def play(watermark: Watermark | None, suite_dir: Path, when: str) -> None:
    """Rest, load pattern, rest; then one line in `watermark.jsonl`, on the medium on return.

    `when` is `start` or `end`. Nothing happens where the plan has no watermark. A pattern that
    could not be played costs the suite only its check of the clocks, so the line tells the error.
    """
    if watermark is None:
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
    _append(suite_dir / FILE, line)


def _append(path: Path, line: dict[str, Any]) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        data = (json.dumps(line) + "\n").encode()
        # A torn line of a power cut stays one line that cannot be read.
        if (size := os.fstat(fd).st_size) and os.pread(fd, 1, size - 1) != b"\n":
            data = b"\n" + data
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    sync_folder(path.parent)
