"""Errors whose text is meant for people: what went wrong and the way out, in one sentence."""

from __future__ import annotations


class AgentError(Exception):
    """What went wrong and the way out, in one sentence; the CLI prints it and exits with 1."""


class ControllerError(AgentError):
    """What went wrong on the controller and the way out, in one sentence."""


class LabError(Exception):
    """The lab cannot continue; the message says why and what fixes it."""
