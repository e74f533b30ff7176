"""Errors whose text is meant for people: what failed, why, and the remedy."""

from __future__ import annotations

from contract.problem import ProblemError


class AgentError(ProblemError):
    """An error with its reason and remedy; the CLI prints it and exits with `exit_status`."""

    exit_status = 1

    ROOM = "agent"


class ControllerError(AgentError):
    """An error on the controller, with its reason and remedy."""

    ROOM = "controller"


class LabError(ProblemError):
    """An error of the lab, with its reason and remedy."""

    ROOM = "lab"
