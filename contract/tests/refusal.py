"""Expectation of a refusal in tests: its code and facts, not its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from contract.problem import Fact, ProblemError

Refusal = AbstractContextManager[pytest.ExceptionInfo[ProblemError]]


@contextmanager
def refuses(code: str, /, **facts: Fact) -> Iterator[pytest.ExceptionInfo[ProblemError]]:
    """Expect a ProblemError whose first problem has this code and these facts."""
    with pytest.raises(ProblemError) as caught:
        yield caught
    problem = caught.value.problems[0]
    assert (problem.code, {key: problem.facts.get(key) for key in facts}) == (code, facts), problem
