"""Errors whose text is meant for people: what failed, why, and the remedy."""

from __future__ import annotations


class AgentError(Exception):
    """What failed, why, and the remedy; the CLI prints it and exits with `exit_status`."""

    exit_status = 1


class ControllerError(AgentError):
    """What failed on the controller, why, and the remedy."""


class LabError(Exception):
    """The lab cannot continue; the message has the reason and the remedy."""
