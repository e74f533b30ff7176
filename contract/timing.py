"""timing.json: where the wall time of a suite went (data/README.md)."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict, dataclass, fields
from typing import Any

from contract.schema import SECONDS


def _part(name: str) -> Any:
    """Make the field of a part that people call so."""
    return dataclasses.field(default=0.0, metadata={"name": name})


@dataclass(frozen=True)
class Timing:
    """timing.json; the fields in `PARTS` add up to `wall_s`.

    Older files lack some of these, whose seconds were in the others.
    """

    format: str = "fde-timing/1"
    wall_s: SECONDS = 0.0
    measuring_s: SECONDS = _part("measuring")
    preconditioning_s: SECONDS = _part("preconditioning disks")
    switching_s: SECONDS = _part("switching storage")
    preparing_s: SECONDS = _part("preparing runs")
    between_phases_s: SECONDS = _part("between phases")
    proving_s: SECONDS = _part("proving the storage")
    between_runs_s: SECONDS = _part("between runs")
    repeated_s: SECONDS = _part("void attempts")
    waiting_s: SECONDS = _part("waiting")
    start_s: SECONDS = _part("starting")
    fetch_s: SECONDS = _part("fetching results")
    down_s: SECONDS = _part("target or agent away")
    other_s: SECONDS = _part("other")
    settle_s: SECONDS = 0.0
    tail_s: SECONDS = 0.0
    measuring_share: float = 0.0
    controller_cpu_s: float | None = None
    controller_cpu_wall_s: float | None = None

    @property
    def controller_share(self) -> float | None:
        """Share of one processor that a controller on the target kept busy; None elsewhere."""
        if not self.controller_cpu_s or not self.controller_cpu_wall_s:
            return None
        return self.controller_cpu_s / self.controller_cpu_wall_s

    def document(self) -> dict[str, str | float]:
        """Return it as JSON holds it; what was not observed has no key."""
        return {key: value for key, value in asdict(self).items() if value is not None}


PARTS: dict[str, str] = {
    field.name: field.metadata["name"] for field in fields(Timing) if field.metadata
}
