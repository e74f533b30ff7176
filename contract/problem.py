"""A problem: a code and its facts for programs, a sentence and its remedy for people."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

Fact = str | int | float | bool | None


class Wording(NamedTuple):
    """Templates of a problem's sentence and remedy; its facts fill both."""

    sentence: str
    remedy: str = ""


@cache
def wordings_of(room: str, *table: str) -> Mapping[str, Wording]:
    """Read the wordings of a room's problems by code, or those of a table in its file."""
    file = Path(__file__).parents[1] / room / "wordings.toml"
    tables: Mapping[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    for name in table:
        tables = tables[name]
    return {code: Wording(**texts) for code, texts in tables.items()}


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
        cls, wordings: Mapping[str, Wording], code: str, facts: Mapping[str, object]
    ) -> Self:
        """Fill the wording of `code`; raises KeyError for a code or fact that it lacks."""
        sentence, remedy = (text.format(**facts) for text in wordings[code])
        plain: dict[str, Any] = {  # tuples are of plain values, as a proof's segments
            key: fact if isinstance(fact, Fact | tuple) else str(fact)
            for key, fact in facts.items()
        }
        return cls(code, plain, sentence, remedy)

    def __str__(self) -> str:
        return f"{self.sentence} {self.remedy}".strip()

    def document(self) -> dict[str, object]:
        """Return the problem as JSON holds it: `code`, `facts`, `sentence`, `remedy`."""
        return asdict(self)


class ProblemError(Exception):
    """One problem or several, as an error whose text has their sentences and remedies.

    A cause is the code of a wording, a problem, an error whose problems are handed on, or a
    sentence without a code, which is what packages of others raise.
    """

    ROOM: ClassVar[str] = ""  # by default the one of its module
    WORDINGS: ClassVar[Mapping[str, Wording]] = {}

    def __init__(self, *causes: str | BaseException | Problem, **facts: object) -> None:
        self.problems = tuple(each for cause in causes for each in self._problems(cause, facts))
        super().__init__(" ".join(map(str, self.problems)))

    @property
    def code(self) -> str:
        """The code of the first problem."""
        return self.problems[0].code

    @property
    def facts(self) -> Mapping[str, Fact]:
        """The facts of the first problem."""
        return self.problems[0].facts

    @classmethod
    def wordings(cls) -> Mapping[str, Wording]:
        """Return the wordings that an error of this class may name by code."""
        room = cls.ROOM or cls.__module__.partition(".")[0]
        return cls.WORDINGS or {**wordings_of("contract"), **wordings_of(room)}

    def _problems(
        self, cause: str | BaseException | Problem, facts: Mapping[str, object]
    ) -> tuple[Problem, ...]:
        if isinstance(cause, ProblemError):
            return cause.problems
        if isinstance(cause, Problem):
            return (cause,)
        wordings = self.wordings()
        if cause in wordings:
            return (Problem.from_wording(wordings, str(cause), facts),)
        return (Problem("", {}, str(cause)),)
