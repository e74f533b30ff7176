"""Checks of what the kernel said during the run."""

from __future__ import annotations

from agent.checks import kernel_log
from agent.checks.context import CheckContext, Observation
from agent.checks.kernel_log import Line


def lines(context: CheckContext) -> list[Line] | None:
    return context.kernel_lines


def grave(before: list[Line], now: list[Line]) -> Observation:
    """Number of lines that spoil the run."""
    found = kernel_log.grave(kernel_log.since(before, now))
    return Observation(len(found), not found, {"lines": kernel_log.show(found)})


def suspicious(before: list[Line], now: list[Line]) -> Observation:
    """Number of warnings that nobody has called harmless."""
    found = kernel_log.suspicious(kernel_log.since(before, now))
    return Observation(len(found), not found, {"lines": kernel_log.show(found)})
