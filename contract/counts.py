"""What a source shows: its count at an edge, and times without one, as run.json has them."""

from __future__ import annotations

from dataclasses import dataclass

from contract.schema import COUNT


@dataclass(frozen=True, slots=True)
class Edge:
    """A counter at an edge: when it was read, between two stamps of the target, and its µJ."""

    t_before_ns: int
    t_after_ns: int
    energy_uj: COUNT


@dataclass(frozen=True)
class Gap:
    """Time without power readings, with the system's reason."""

    from_ns: int
    until_ns: int
    error: str
