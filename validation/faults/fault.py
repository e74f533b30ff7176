"""What a fault is, for the runner: a name, words, and something that does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from validation.faults.trial import Outcome
from validation.scene import Scene


@dataclass(frozen=True)
class TrialOptions:
    """How it is to be done: `quick` shortens what takes long; `seed` says when chance strikes."""

    quick: bool = False
    seed: int = 1


@dataclass(frozen=True)
class Fault:
    """One fault.

    `does` and `undone` are sentences on what it does and how that is taken back. `inject` makes a
    suite of its own, harms it, lets it come to its end and returns what became of it; it raises
    LabError where that cannot be done. `needs` are abilities of the machine (lab.machines.base).
    """

    name: str
    does: str
    undone: str
    inject: Callable[[Scene, TrialOptions], Outcome]
    needs: frozenset[str] = frozenset()
