"""Compare a suite's joules by phase with what the lab's meter was fed.

    python -m validation.closure SUITE_DIR TRUTH_FILE

prints the largest and the 95th percentile of the phases' errors. The meter must have run with
`--truth-period 0`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from analysis.suite.clocks import TargetClock
from analysis.suite.records import SYSTEM
from analysis.suite.suite_folder import read


@dataclass(frozen=True)
class PhaseEnergy:
    """Energy of one phase: the analysis's figure, and the integral of the meter's input."""

    run_id: str
    phase: str
    duration_s: float
    energy_j: float
    truth_j: float

    @property
    def error_percent(self) -> float:
        """Error in % of the true energy, signed."""
        return 100 * (self.energy_j / self.truth_j - 1)


def phases(suite_dir: Path, truth_file: Path) -> Iterator[PhaseEnergy]:
    """Yield every measured phase of the finished runs, for the whole system."""
    suite = read(suite_dir)
    clock = TargetClock.fit(suite.clock)
    truth = [json.loads(line) for line in truth_file.read_text(encoding="utf-8").splitlines()]
    t_ns = np.array([line["t_mono_ns"] for line in truth], dtype=float)
    energy_j = np.array([line["system_j"] for line in truth])
    system = pl.read_parquet(suite_dir / "energy.parquet").filter(
        pl.col("component") == SYSTEM, pl.col("energy_j").is_not_null()
    )
    by_phase = {
        (run_id, phase): joules
        for run_id, phase, joules in system.select("run_id", "phase", "energy_j").iter_rows()
    }
    for run in suite.runs:
        for phase in run.phases:
            edges = [
                clock.to_controller_ns(run.boot_id, t) for t in (phase.t_start_ns, phase.t_end_ns)
            ]
            if (run.run_id, phase.name) not in by_phase or None in edges:
                continue
            start_j, end_j = np.interp(np.array(edges, dtype=float), t_ns, energy_j)
            yield PhaseEnergy(
                run.run_id,
                phase.name,
                (phase.t_end_ns - phase.t_start_ns) / 1e9,
                by_phase[run.run_id, phase.name],
                float(end_j - start_j),
            )


def main() -> None:
    """Print the table of errors by the phases' lengths."""
    parser = argparse.ArgumentParser(prog="python -m validation.closure", description=__doc__)
    parser.add_argument("suite_dir", type=Path)
    parser.add_argument("truth", type=Path)
    options = parser.parse_args()
    energies = list(phases(options.suite_dir, options.truth))
    for least_s, most_s in ((0.0, 0.1), (0.1, 0.3), (0.3, 1.0), (1.0, 3.0), (3.0, 1e9)):
        errors = [abs(p.error_percent) for p in energies if least_s <= p.duration_s < most_s]
        if errors:
            print(
                f"{least_s:g} s and more: {len(errors)} phases, error p95 "
                f"{np.quantile(errors, 0.95):.2f} %, largest {max(errors):.2f} %"
            )


if __name__ == "__main__":
    main()
