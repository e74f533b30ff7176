"""A suite drawn from what Fujimoto et al. print: no machine took part, its origin is *synthetic*.

Printed (data/reference/fujimoto.csv) and drawn from mean and 95 % interval as they stand: the time
to read one file of 10 MB (20 of them make a run) and to write one of 1 GB, time and energy to
unpack the kernel, the time of one grep. A half width h over n = 20 runs is a standard deviation of
h √n / t(0.975, n − 1). Time and energy of unpacking come from one draw, because the paper finds the
power nearly constant; where a printed interval of time is doubtful, that of its energy stands in.

Assumed, because the paper has only a statement or a picture:

- Power is what the unpacking took, joules over seconds: about 30 W in every configuration.
- Writing files of 10 MB costs the same everywhere and takes as long as reading them plain.
- A whole run of the kernel tree: 12.2, 12.5, 13.5 and 13.4 kJ. That gives the paper's 15, 14 and 13
  runs on 180 kJ, its 1,000 J saved against AES-128, hardware "only slightly" above plain, and
  AES-256 a little below AES-128. What is left beside the unpacking is packing, with the relative
  scatter of the unpacking. At 30 W a run takes about 7 minutes: the paper's "bit less than
  2 minutes" do not fit its joules.
- SQL: 60 s in every configuration, as it finds no significant difference; scatter as for plain
  unpacking. Video: 2,200 J (Figure 6 begins at 2,100 J) in a time that playback fixes, ±0.5 % over
  60 runs (the largest margin of a single component is 2 %).
- At rest the machine takes 25 W.
- The meter's limits of error, for the paper names none: 0.5 % of gain, 0.1 % of linearity. Its
  readings have no such error.
- Runs are independent of each other: there is no drift and no effect of blocks.

The suite has the whole machine alone: of drive, processor and memory the paper has pictures without
numbers, and what would stand here for them would not be its own.

The margin of equivalence is ±5 %: the paper calls 1.7 % (unpacking) and 4.2 % (writing 1 GB) "only
slightly more". Price, electricity and battery are the paper's; the disk's life is its "almost
3 years". It has no runs a day: 24 of the kernel tree are this testbed's own.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from analysis.suite.records import SYNTHETIC
from contract.strict_json import Document
from instrumentation.meters.smartpower3 import SmartPower3
from validation.synthetic.folder import (
    CHANNELS,
    FinishedRun,
    Line,
    Marks,
    Power,
    Record,
    dump,
    write_manifest,
    write_meter,
)
from validation.synthetic.suite import CONFIGURATIONS, STACKS, frozen, shuffled

CALIBRATION: Document = {
    "source": "assumed for this synthetic suite",
    "terms": {"gain": 0.005, "linearity": 0.001},
}
REFERENCE = Path(__file__).parents[2] / "data" / "reference" / "fujimoto.csv"
SUITE_ID = "paper-synthetic-20120101T000000Z"
CREATED = "2012-01-01T00:00:00+00:00"
SCALE = (
    "SYNTHETIC: drawn from the means and 95 % intervals printed by Fujimoto et al.; no machine "
    "took part. Assumed where the paper has only a statement: about 30 W in every configuration; "
    "12.2, 12.5, 13.5 and 13.4 kJ for a run of the kernel tree (15, 14 and 13 runs on a battery, "
    "1,000 J saved); SQL, video and small writes alike in all configurations; 24 runs a day; a "
    "margin of 5 %"
)
# Both of the paper's disks turn (Section II.B).
PROVENANCE = {"synthetic": SCALE, "disks": {name: {"rotational": "1"} for name in ("plain", "sed")}}
PRINTED_RUNS = 20
SMALL_FILES = 20
TREE_J = {"plain": 12_200, "opal": 12_500, "dmcrypt-aes128": 13_500, "dmcrypt-aes256": 13_400}
SQL_S = 60.0
VIDEO_J, VIDEO_MARGIN, VIDEO_RUNS = 2200.0, 0.005, 60
PARTS_W = (0.0, 0.0, 0.0)  # drive, processor, memory: no part of the suite
REST_W = (25.0, *PARTS_W)
SETTLE_S, PAD_S, TAIL_S = 10.0, 2.0, 10.0
INTERVAL_MS = 500
RAPL_STEP_S = 2.0
RIPPLE = 0.002  # of the power, by turns; it leaves the joules as they are
BURST_EVERY_S = 30.0
WORKLOADS: Mapping[str, Mapping[str, Any]] = {
    "file_io": {
        **{"small_files": SMALL_FILES, "small_mib": 10, "large_mib": 1024, "source": "zero"},
        **{"separate": True, "fsync": False, "cache": "cold"},
    },
    "kernel_tree": {},
    "kernel_grep": {"copies": 1, "word": "module"},
    "sql": {"script": "read-only"},
    "video": {},
}
WORK: Mapping[str, Mapping[str, float]] = {
    "write-small": {"bytes": SMALL_FILES * 10.0 * 2**20, "files": float(SMALL_FILES)},
    "read-small": {"bytes": SMALL_FILES * 10.0 * 2**20, "files": float(SMALL_FILES)},
    "write-large": {"bytes": 2.0**30, "files": 1.0},
}


@dataclass(frozen=True)
class Stretch:
    """Mean time and energy of a phase over many runs, and their relative standard deviations.

    One draw moves both.
    """

    seconds: float
    joules: float
    scatter_s: float
    scatter_j: float

    def draw(self, generator: np.random.Generator) -> tuple[float, float]:
        """Draw seconds and joules of one run."""
        z = float(generator.standard_normal())
        return self.seconds * (1 + self.scatter_s * z), self.joules * (1 + self.scatter_j * z)


def write_paper_suite(folder: Path, seed: int = 2012, blocks: int = 20) -> None:
    """Make the sealed suite folder."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(seed)
    plan = _plan(seed, blocks, generator)
    record = Record(
        plan,
        Power(RIPPLE),
        rapl_step_s=RAPL_STEP_S,
        zones=(),
        channels={"0": "system"},
        started_wall=CREATED,
    )
    means = expected()
    power = record.power
    power.add(5.0, REST_W)
    record.state("suite-started")
    for run in plan["runs"]:
        record.state("switching", run["run_id"])
        phases = means[run["configuration"]][run["workload"]]
        marks = _enact(phases, power, generator)
        record.finish(FinishedRun(run, marks, WORKLOADS[run["workload"]], WORK))
    power.add(5.0, REST_W)
    record.state("suite-finished")

    record.write(folder, generator, PROVENANCE, BURST_EVERY_S)
    meter = SmartPower3(CHANNELS, {"interval_ms": INTERVAL_MS, "calibration": CALIBRATION})
    write_meter(folder, record, Line(meter.description()["accuracy"], INTERVAL_MS), generator)
    measuring_s = sum(finished.marks[-1][2] - finished.marks[0][1] for finished in record.runs)
    timing = {"wall_s": power.end_s, "measuring_s": measuring_s}
    dump(folder / "timing.json", {**timing, "other_s": power.end_s - measuring_s})
    write_manifest(folder)


def expected(path: Path = REFERENCE) -> dict[str, dict[str, dict[str, Stretch]]]:
    """Return the stretches by configuration, workload and phase."""
    printed = _printed(path)
    return {name: _expected(name, printed) for name in CONFIGURATIONS}


Printed = Mapping[tuple[str, str, str], tuple[float, float, bool]]


def _printed(path: Path) -> Printed:
    """Return mean, relative SD of a run and doubt by (entry, configuration, quantity)."""
    printed = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["half_width_95"]:
                mean, half = float(row["value"]), float(row["half_width_95"])
                key = row["entry"], row["configuration"], row["quantity"]
                printed[key] = mean, _sd(half, PRINTED_RUNS) / mean, row["doubtful"] == "yes"
    return printed


def _sd(half_width: float, runs: int) -> float:
    """Return a run's standard deviation from the half width of their mean's 95 % interval."""
    return half_width * math.sqrt(runs) / float(stats.t.ppf(0.975, runs - 1))


def _expected(name: str, printed: Printed) -> dict[str, dict[str, Stretch]]:
    untar_j, scatter_j, _ = printed["untar", name, "energy"]
    untar_s, scatter_s, doubtful = printed["untar", name, "time"]
    power_w = untar_j / untar_s
    plain_j, plain_scatter, _ = printed["untar", "plain", "energy"]
    plain_w = plain_j / printed["untar", "plain", "time"][0]
    left_j = TREE_J[name] - untar_j
    small_s, small_scatter, _ = printed["read-10mb", "plain", "time"]
    read_s, read_scatter, _ = printed["read-10mb", name, "time"]
    video_scatter = _sd(VIDEO_MARGIN, VIDEO_RUNS)
    return {
        "file_io": {
            "write-small": _timed(SMALL_FILES * small_s, small_scatter, plain_w),
            "read-small": _timed(SMALL_FILES * read_s, read_scatter, power_w),
            "write-large": _timed(*printed["write-1gb", name, "time"][:2], power_w),
        },
        "kernel_tree": {
            "untar": Stretch(untar_s, untar_j, scatter_j if doubtful else scatter_s, scatter_j),
            "tar": _timed(left_j / power_w, scatter_j, power_w),
        },
        "kernel_grep": {"grep-1": _timed(*printed["grep", name, "time"][:2], power_w)},
        "sql": {"query": _timed(SQL_S, plain_scatter, plain_w)},
        "video": {"play": Stretch(VIDEO_J / plain_w, VIDEO_J, 0.0, video_scatter)},
    }


def _timed(seconds: float, scatter: float, power_w: float) -> Stretch:
    return Stretch(seconds, seconds * power_w, scatter, scatter)


def _enact(phases: Mapping[str, Stretch], power: Power, generator: np.random.Generator) -> Marks:
    stretches = []
    for phase, stretch in phases.items():
        seconds, joules = stretch.draw(generator)
        stretches.append((phase, seconds, (joules / seconds, *PARTS_W)))
    return power.add_run(stretches, REST_W, (SETTLE_S + PAD_S, PAD_S), (TAIL_S, REST_W))


def _plan(seed: int, blocks: int, generator: np.random.Generator) -> dict[str, Any]:
    others = [name for name in CONFIGURATIONS if name != "plain"]
    contrasts = [["plain", name] for name in others] + [["opal", name] for name in others[1:]]
    return frozen(
        {
            "suite_id": SUITE_ID,
            "suite": "paper",
            "scale": SCALE,
            "seed": seed,
            "blocks": blocks,
            "created_wall": CREATED,
            "origin": SYNTHETIC,
            "configurations": [{"name": name, **STACKS[name]} for name in CONFIGURATIONS],
            "workloads": [{"name": n, "parameters": dict(p)} for n, p in WORKLOADS.items()],
            "runs": shuffled(blocks, CONFIGURATIONS, list(WORKLOADS), generator),
            "settle_s": SETTLE_S,
            "pad_s": PAD_S,
            "tail_s": TAIL_S,
            "rapl_hz": 1 / RAPL_STEP_S,
            "analysis": {"contrasts": contrasts, "margin": 0.05},
            "assumptions": {
                "sed_extra_price": 25.0,
                "currency": "USD",
                "electricity_price_per_kwh": 0.12,
                "battery_wh": 50.0,
                "life_years": 3.0,
                "runs_per_day": 24.0,
            },
        }
    )
