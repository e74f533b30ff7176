"""The one family of errors whose text is meant for people."""

from __future__ import annotations


class AgentError(Exception):
    """What went wrong and the way out, in one sentence; the CLI prints it and exits with 1."""
