"""What a reboot does to a suite's files, for suites whose joules are known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from instrumentation import decode
from instrumentation.trace import StreamWriter
from validation.metrology.conversation import read_frames
from validation.synthetic.folder import Clocks, dump, write_journal, write_lines, write_manifest

FIRST, SECOND = "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002"
AFTER_BOOT_NS = 7_000_000_000  # what a machine's clock shows when the first of ours runs on it


def reboot_controller(
    folder: Path, at_s: float, away_s: float = 0.0, wall: tuple[str, str] | None = None
) -> None:
    """Start the controller again `at_s`; nothing is recorded for `away_s`.

    Its clock restarts, and it records on in another folder. `wall`: when each recording began.
    """
    gone_ns, back_ns = round(at_s * 1e9), round((at_s + away_s) * 1e9)
    meter = folder / "meters" / "meter0"
    frames = list(read_frames(meter / "stream.raw"))
    description = json.loads((meter / "meter.json").read_text())
    later = meter.with_name("meter0.2")
    later.mkdir()
    for k, (place, boot) in enumerate(((meter, FIRST), (later, SECOND))):
        fields = {"controller_boot_id": boot} | ({"started_wall": wall[k]} if wall else {})
        dump(place / "meter.json", {**description, **fields})
    (meter / "stream.raw").unlink()
    before, after = StreamWriter(meter / "stream.raw"), StreamWriter(later / "stream.raw")
    after.append(AFTER_BOOT_NS, b"")
    for frame in frames:
        if frame.t_mono_ns < gone_ns:
            before.append(frame.t_mono_ns, frame.data)
        elif frame.t_mono_ns >= back_ns:
            after.append(frame.t_mono_ns - back_ns + AFTER_BOOT_NS, frame.data)
    for writer, place in ((before, meter), (after, later)):
        writer.close()
        decode.write_samples(place)
    clock_lines = []
    for line in map(json.loads, (folder / "clock.jsonl").read_text().splitlines()):
        if line["t_send_ns"] < gone_ns:
            clock_lines.append({**line, "controller_boot_id": FIRST})
        elif line["t_send_ns"] >= back_ns:
            moved = {
                key: line[key] - back_ns + AFTER_BOOT_NS for key in ("t_send_ns", "t_receive_ns")
            }
            clock_lines.append({**line, **moved, "controller_boot_id": SECOND})
    write_lines(folder / "clock.jsonl", clock_lines)
    write_manifest(folder)


def suspend_controller(folder: Path, at_s: float, asleep_s: float, journalled: bool = True) -> None:
    """Suspend the controller from `at_s` on: its clock stands still, and it records nothing.

    `journalled`: its clock readings say how long it slept.
    """
    gone_ns, asleep_ns = round(at_s * 1e9), round(asleep_s * 1e9)
    meter = folder / "meters" / "meter0"
    frames = list(read_frames(meter / "stream.raw"))
    description = json.loads((meter / "meter.json").read_text())
    dump(meter / "meter.json", {**description, "controller_boot_id": FIRST})
    (meter / "stream.raw").unlink()
    writer = StreamWriter(meter / "stream.raw")
    for frame in frames:
        if not gone_ns <= frame.t_mono_ns < gone_ns + asleep_ns:
            woken_ns = asleep_ns if frame.t_mono_ns >= gone_ns else 0
            writer.append(frame.t_mono_ns - woken_ns, frame.data)
    writer.close()
    decode.write_samples(meter)
    clock_lines = []
    for line in map(json.loads, (folder / "clock.jsonl").read_text().splitlines()):
        later = line["t_send_ns"] >= gone_ns + asleep_ns
        if not later and line["t_receive_ns"] >= gone_ns:
            continue
        moved = {key: line[key] - later * asleep_ns for key in ("t_send_ns", "t_receive_ns")}
        fields = {"controller_asleep_ns": asleep_ns} if journalled and later else {}
        clock_lines.append({**line, **moved, **fields, "controller_boot_id": FIRST})
    write_lines(folder / "clock.jsonl", clock_lines)
    write_manifest(folder)


def reboot_target(folder: Path, at_s: float, clocks: Clocks | None = None) -> None:
    """Start the target again `at_s`: its clock goes back, and it has another boot id."""
    at_ns = (clocks or Clocks()).target_ns(at_s)

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        shifted = {key: moved(entry) for key, entry in value.items()}
        for key in ("t_start_ns", "t_end_ns", "t_before_ns", "t_after_ns", "t_mono_ns"):
            if isinstance(shifted.get(key), int) and shifted[key] >= at_ns:
                shifted[key] += AFTER_BOOT_NS - at_ns
                if "boot_id" in shifted:
                    shifted["boot_id"] = SECOND
        return shifted

    def in_lines(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        write_lines(path, [change(json.loads(line)) for line in path.read_text().splitlines()])

    def of_link(line: dict[str, Any]) -> dict[str, Any]:
        if line["t_target_ns"] < at_ns:
            return line
        there_ns = line["t_target_ns"] - at_ns + AFTER_BOOT_NS
        return {**line, "t_target_ns": there_ns, "boot_id": SECOND}

    for run in (folder / "runs").iterdir():
        document = moved(json.loads((run / "run.json").read_text()))
        in_lines(run / "rapl.jsonl", moved)
        sha256 = hashlib.sha256((run / "rapl.jsonl").read_bytes()).hexdigest()
        dump(run / "run.json", {**document, "rapl_sha256": sha256})
    journal = (folder / "journal.jsonl").read_text().splitlines()
    write_journal(folder, [moved(json.loads(line)) for line in journal])
    in_lines(folder / "clock.jsonl", of_link)
    write_manifest(folder)
