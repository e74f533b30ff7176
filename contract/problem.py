"""A problem: a code and its facts for programs, a sentence and its remedy for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, NamedTuple, Self

from contract.errors import AgentError

Fact = str | int | float | bool | None


class Wording(NamedTuple):
    """Templates of a problem's sentence and remedy; its facts fill both."""

    sentence: str
    remedy: str = ""


@dataclass(frozen=True)
class Problem:
    """Why something cannot be done, and what to do about it; both texts are whole sentences.

    `code` is lower-case words joined by hyphens, `remedy` is empty where there is none.
    """

    code: str
    facts: Mapping[str, Fact]
    sentence: str
    remedy: str = ""

    @classmethod
    def from_wording(
        cls, wordings: Mapping[str, Wording], code: str, facts: Mapping[str, Fact]
    ) -> Self:
        """Fill the wording of `code`; raises KeyError for a code or fact that it lacks."""
        sentence, remedy = (text.format(**facts) for text in wordings[code])
        return cls(code, facts, sentence, remedy)

    def __str__(self) -> str:
        return f"{self.sentence} {self.remedy}".strip()

    def document(self) -> dict[str, object]:
        """Return the problem as JSON holds it: `code`, `facts`, `sentence`, `remedy`."""
        return asdict(self)


class ProblemError(AgentError):
    """One problem or several, as an error whose text has their sentences and remedies."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(" ".join(map(str, problems)))
        self.problems = problems


class WordedError(ProblemError):
    """A single problem, by its code and facts; subclasses have the wordings of their codes."""

    WORDINGS: ClassVar[Mapping[str, Wording]] = {}

    def __init__(self, code: str, /, **facts: Fact) -> None:
        super().__init__(Problem.from_wording(self.WORDINGS, code, facts))
        self.code = code
        self.facts = facts
