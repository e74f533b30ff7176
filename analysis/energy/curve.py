"""Edges at which energy is asked for, and what a channel's windows tell at them and between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.suite.align import Floats, Ints


@dataclass(frozen=True)
class Edge:
    """An instant, and on which side of it the machine rests, for `rest_ns`.

    `bound_ns`: how far the instant and the windows can be apart besides the timing of the meter.
    """

    t_ns: int
    rest: Literal["before", "after"] | None = None
    rest_ns: int = 0
    bound_ns: int = 0


@dataclass(frozen=True, eq=False)
class Curve:
    """One channel at n edges and in the n − 1 stretches between them.

    At the edges: `split_j` how far the energy may be off since a window is cut (standard
    uncertainty, in J; equal `window` numbers: by the same course of the power), `slope_w` the power
    by which a displaced edge changes the energy. Between: `energy_j` with what was filled in,
    `covered_s`, `filled_j` (standard uncertainty of what was filled in), `count` of whole windows
    with the sums `sum_w` and `squares_w2` of their power less one that is the same for all, and
    `steps_w2` of the squares of its steps; `by_plateau` and `by_counter` where gaps were filled,
    `void` where nothing is known. Of the rests beside the edges: sum of the squares about their
    means, and its degrees of freedom.
    """

    t_ns: Ints
    split_j: Floats
    window: Ints
    slope_w: Floats
    energy_j: Floats
    covered_s: Floats
    filled_j: Floats
    count: Ints
    sum_w: Floats
    squares_w2: Floats
    steps_w2: Floats
    by_plateau: npt.NDArray[np.bool_]
    by_counter: npt.NDArray[np.bool_]
    void: npt.NDArray[np.bool_]
    rest_squares_w2: float = 0.0
    rest_freedom: int = 0


class Edges:
    """The edges as arrays."""

    def __init__(self, edges: Sequence[Edge], bound_ns: float) -> None:
        self.t_ns = np.array([edge.t_ns for edge in edges], np.int64)
        self.rest = np.array([_SIDES[edge.rest] for edge in edges], np.int64)
        self.rest_ns = np.array([edge.rest_ns for edge in edges], np.int64)
        self.bound_ns = np.array([edge.bound_ns + bound_ns for edge in edges])

    def __len__(self) -> int:
        return len(self.t_ns)


_SIDES = {None: 0, "before": -1, "after": 1}
