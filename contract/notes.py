"""Notes and contrasts, common to results of suites and of commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contract.estimates import Estimate


@dataclass(frozen=True)
class Note:
    """A note for the reader of some figures.

    It has a code and facts for programs, and a sentence for people.
    """

    code: str
    facts: Mapping[str, Any]
    sentence: str


@dataclass(frozen=True)
class ContrastResult:
    """`ratio` of the joules of `other` to those of `base`, with its verdict.

    It is over `workloads` of a suite (none for commands), with its 95 % interval; null if not
    available. `time` and `power` are the ratios of time and of mean power, whose product it is;
    they have no verdict.
    """

    base: str
    other: str
    declared: bool
    workloads: tuple[str, ...]
    blocks: int
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str | None
    time: Estimate | None = None
    power: Estimate | None = None
