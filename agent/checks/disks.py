"""Checks of the disks under test: their health, the errors they count, their firmware."""

from __future__ import annotations

from pathlib import Path

from agent.checks import first
from agent.checks.scene import Scene, Seen, number, text


def health(scene: Scene) -> Seen | None:
    """What the disks say of themselves."""
    verdicts = {name: h.passed for name, h in scene.health.items() if h.passed is not None}
    if not verdicts:
        return None
    failed = " ".join(sorted(name for name, passed in verdicts.items() if not passed))
    return Seen(failed or "passed", not failed, f"the disk says that it fails: {failed}")


def medium_errors(scene: Scene) -> dict[str, int] | None:
    """Errors of the media since they were made, by serial number.

    A kernel's name may belong to another disk after a boot.
    """
    return {h.serial or name: h.errors for name, h in scene.health.items()} or None


def errors_grew(before: dict[str, int], now: dict[str, int]) -> Seen:
    return _grown(before, now, "the disk counted errors of its medium during the run")


def errors_of_suite(scene: Scene) -> Seen | None:
    """Whether media have got worse since the suite began."""
    now = medium_errors(scene)
    if now is None:
        return None
    then = first.reading(scene.suite_dir, "medium_errors", now)
    return _grown(then, now, "the disk counted errors of its medium since the suite began")


def io_errors(scene: Scene) -> dict[str, int] | None:
    """Commands that failed since boot, by disk (SCSI and ATA)."""
    counts = {name: number(_device(scene, name) / "ioerr_cnt") for name in scene.disks}
    return {name: count for name, count in counts.items() if count is not None} or None


def io_errors_grew(before: dict[str, int], now: dict[str, int]) -> Seen:
    return _grown(before, now, "commands to the disk failed during the run")


def firmware(scene: Scene) -> Seen | None:
    """Whether the disks' firmware is the one that the suite began with."""
    now = {}
    for name in scene.disks:
        device = _device(scene, name)
        revision = text(device / "firmware_rev") or text(device / "rev")
        if revision:
            now[text(device / "serial") or text(device / "wwid") or name] = revision
    if not now:
        return None
    then = first.reading(scene.suite_dir, "firmware", now)
    shown = " ".join(sorted(now.values()))
    return Seen(shown, now == then, "the disks' firmware is not the one that the suite began with")


def _device(scene: Scene, name: str) -> Path:
    return scene.sys / "class/block" / name / "device"


def _grown(before: dict[str, int], now: dict[str, int], why: str) -> Seen:
    grown = sum(max(0, count - before.get(name, count)) for name, count in now.items())
    return Seen(grown, grown == 0, why)
