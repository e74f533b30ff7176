"""Readings of a source in run.json: a counter at an edge, and gaps without readings."""

from __future__ import annotations

from dataclasses import dataclass

from contract.schema import COUNT


@dataclass(frozen=True, slots=True)
class Edge:
    """A counter at an edge: its µJ, read between two times of the target's clock."""

    t_before_ns: int
    t_after_ns: int
    energy_uj: COUNT


@dataclass(frozen=True)
class Gap:
    """Time without power readings, with the system's error."""

    from_ns: int
    until_ns: int
    error: str
