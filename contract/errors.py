"""Errors whose text is meant for people: what failed, why, and the remedy."""

from __future__ import annotations

from contract.problem import ProblemError


class AgentError(ProblemError):
    """What failed, why, and the remedy; the CLI prints it and exits with `exit_status`."""

    exit_status = 1

    ROOM = "agent"


class ControllerError(AgentError):
    """What failed on the controller, why, and the remedy."""

    ROOM = "controller"


class LabError(ProblemError):
    """The lab cannot continue; the message has the reason and the remedy."""

    ROOM = "lab"
