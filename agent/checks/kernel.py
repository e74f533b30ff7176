"""Checks of what the kernel said during the run."""

from __future__ import annotations

from agent.checks import kernel_log
from agent.checks.kernel_log import Line
from agent.checks.scene import Scene, Seen


def lines(scene: Scene) -> list[Line] | None:
    return scene.kernel_lines


def grave(before: list[Line], now: list[Line]) -> Seen:
    """Number of lines that spoil the run."""
    found = kernel_log.grave(kernel_log.since(before, now))
    why = f"the kernel told of a failure during the run: {kernel_log.show(found)}"
    return Seen(len(found), not found, why)


def suspicious(before: list[Line], now: list[Line]) -> Seen:
    """Number of warnings that nobody has called harmless."""
    found = kernel_log.suspicious(kernel_log.since(before, now))
    why = f"the kernel warned during the run: {kernel_log.show(found)}"
    return Seen(len(found), not found, why)
