"""Every table, figure and statement of the papers: where ours is, or why there is none."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache

from analysis.published.reference import FOLDER


@dataclass(frozen=True)
class Place:
    """A place of a paper. `entries` are those of its CSV that stand there; none where it has no
    numbers. `suite` (a file of workloads/suites) and `workload` say where ours is, `shown` at which
    phases and quantity; `why` says why there is none, or what of it is missing."""

    paper: str
    place: str
    entries: tuple[str, ...]
    what: str
    suite: str
    workload: str
    shown: str
    why: str

    @property
    def ours(self) -> bool:
        return bool(self.suite)


@cache
def _all() -> tuple[Place, ...]:
    with (FOLDER / "places.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Place(**{**row, "entries": tuple(row["entries"].split())})  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        )


def places(paper: str | None = None) -> list[Place]:
    """Those of one paper, or of all, in the order of the papers."""
    return [place for place in _all() if paper in (None, place.paper)]
