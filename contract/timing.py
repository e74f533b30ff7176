"""timing.json: breakdown of the wall time of a suite (data/README.md)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields

from contract.schema import SECONDS


@dataclass(frozen=True)
class Timing:
    """timing.json; the fields in `PARTS` add up to `wall_s`.

    Older files lack some of these and count their seconds in others.
    """

    wall_s: SECONDS = 0.0
    measuring_s: SECONDS = field(default=0.0, metadata={"name": "measuring"})
    preconditioning_s: SECONDS = field(default=0.0, metadata={"name": "preconditioning disks"})
    switching_s: SECONDS = field(default=0.0, metadata={"name": "switching storage"})
    preparing_s: SECONDS = field(default=0.0, metadata={"name": "preparing runs"})
    between_phases_s: SECONDS = field(default=0.0, metadata={"name": "between phases"})
    proving_s: SECONDS = field(default=0.0, metadata={"name": "proving the storage"})
    between_runs_s: SECONDS = field(default=0.0, metadata={"name": "between runs"})
    repeated_s: SECONDS = field(default=0.0, metadata={"name": "void attempts"})
    waiting_s: SECONDS = field(default=0.0, metadata={"name": "waiting"})
    start_s: SECONDS = field(default=0.0, metadata={"name": "starting"})
    fetch_s: SECONDS = field(default=0.0, metadata={"name": "fetching results"})
    down_s: SECONDS = field(default=0.0, metadata={"name": "target or agent away"})
    other_s: SECONDS = field(default=0.0, metadata={"name": "other"})
    settle_s: SECONDS = 0.0
    tail_s: SECONDS = 0.0
    measuring_share: float = 0.0
    controller_cpu_s: float | None = None
    controller_cpu_wall_s: float | None = None

    @property
    def controller_share(self) -> float | None:
        """Return the controller's share of one processor of the target; None elsewhere."""
        if not self.controller_cpu_s or not self.controller_cpu_wall_s:
            return None
        return self.controller_cpu_s / self.controller_cpu_wall_s

    def document(self) -> dict[str, str | float]:
        """Return the JSON form; values that were not observed are left out."""
        stated = {key: value for key, value in asdict(self).items() if value is not None}
        return {"format": "fde-timing/1", **stated}


PARTS: dict[str, str] = {
    part.name: part.metadata["name"] for part in fields(Timing) if part.metadata
}
