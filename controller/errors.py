"""Errors of the controller whose text is meant for people."""

from __future__ import annotations

from contract.errors import AgentError


class ControllerError(AgentError):
    """What went wrong on the controller and the way out, in one sentence."""
