"""What is refused or missing: a code and its facts for programs, a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from contract.errors import AgentError


@dataclass(frozen=True)
class Cause:
    """`cause` is a key of `SAYS`, whose sentence the facts fill."""

    SAYS: ClassVar[Mapping[str, str]] = {}

    cause: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """For people."""
        return self.SAYS[self.cause].format(**self.facts)

    def document(self) -> dict[str, Any]:
        """For a file, or the controller."""
        return {"cause": self.cause, "facts": dict(self.facts), "sentence": self.sentence}


class CauseError(AgentError):
    """The same as an error: its sentence has the way out."""

    SAYS: ClassVar[Mapping[str, str]] = {}

    def __init__(self, cause: str, /, **facts: Any) -> None:
        super().__init__(self.SAYS[cause].format(**facts))
        self.cause = cause
        self.facts = facts
