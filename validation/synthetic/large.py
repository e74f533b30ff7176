"""A suite as large as any the report must handle quickly: hours of a meter at 1 kHz.

The formats and the wire are the real ones: a PowerSensor3 sends a frame a millisecond in pieces of
five, which its driver decodes to samples.parquet. Nothing in it is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from analysis.suite.records import SYNTHETIC
from controller.session import seal
from instrumentation import decode
from validation.synthetic import powersensor3
from validation.synthetic.folder import FinishedRun, Floats, Power, Record, write_manifest
from validation.synthetic.powersensor3 import FRAMES_HZ, PIECE_FRAMES, RAILS, chunks
from validation.synthetic.suite import STACKS, frozen, shuffled

CHANNELS = {"0": "system", "2": "drive"}
REST_W = (10.0, 1.2, 3.0, 0.8)
BUSY_W = (21.0, 2.4, 9.0, 1.5)
NOISE_W = 0.5
SETTLE_S, PAUSE_S, TAIL_S = 1.0, 0.05, 0.8
BURST_EVERY_S = 30.0
DEARER = (1.0, 1.01, 1.2, 1.3, 1.25, 1.6, 1.5, 1.1)


@dataclass(frozen=True)
class Size:
    """Size of the suite; up to eight configurations and ten workloads."""

    blocks: int = 40
    configurations: int = 8
    workloads: int = 10
    hours: float = 10.0


def write_large_suite(folder: Path, size: Size | None = None, seed: int = 36) -> None:
    """Make the sealed suite folder; at full size it takes minutes and about 1.2 GB."""
    size = size or Size()
    folder.mkdir(parents=True)
    generator = np.random.default_rng(seed)
    plan = _plan(size, seed, generator)
    phases = _phases(plan, size)
    order = {entry["name"]: i for i, entry in enumerate(plan["configurations"])}
    record = Record(plan)
    power = record.power
    power.add(1.0, REST_W)
    record.state("suite-started")
    for run in plan["runs"]:
        record.state("switching", run["run_id"])
        factor = DEARER[order[run["configuration"]]]
        stretches = [
            (phase, length_s * factor * float(np.exp(generator.normal(0, 0.01))), BUSY_W)
            for phase, length_s in phases[run["workload"]]
        ]
        marks = power.add_run(stretches, REST_W, (SETTLE_S, PAUSE_S), (TAIL_S, REST_W))
        record.finish(FinishedRun(run, marks))
    power.add(1.0, REST_W)
    record.state("suite-finished")
    record.write(folder, generator, {"synthetic": plan["scale"]}, BURST_EVERY_S)
    meter = folder / "meters" / "meter0"
    powersensor3.write_recording(meter, CHANNELS, _energies(power, generator))
    decode.write_samples(meter)
    seal.mark_samples(folder)
    write_manifest(folder)


def _plan(size: Size, seed: int, generator: np.random.Generator) -> dict[str, Any]:
    ciphers = [
        {**STACKS["dmcrypt-aes256"], "name": f"dmcrypt-{cipher}-{sector}", "sector_size": sector}
        | {"cipher": f"{cipher}-xts-plain64", "label": f"{cipher}-256, {sector} B sectors"}
        for cipher, sector in product(("aes", "serpent", "twofish"), (512, 4096))
    ]
    named = [{"name": name, **STACKS[name]} for name in ("plain", "opal")]
    configurations = [*named, *ciphers][: size.configurations]
    workloads = [f"load-{number}" for number in range(size.workloads)]
    names = [str(entry["name"]) for entry in configurations]
    return frozen(
        {
            "suite_id": "large-synthetic-20260101T000000Z",
            "suite": "large",
            "scale": f"SYNTHETIC: {size.hours:g} h at 1 kHz, to see how long a report takes",
            "seed": seed,
            "blocks": size.blocks,
            "origin": SYNTHETIC,
            "configurations": configurations,
            "workloads": [{"name": name, "parameters": {}} for name in workloads],
            "runs": shuffled(size.blocks, names, workloads, generator),
            "settle_s": SETTLE_S,
            "rapl_hz": 10,
            "analysis": {"contrasts": [["plain", name] for name in names[1:]], "margin": 0.02},
        }
    )


def _phases(plan: Mapping[str, Any], size: Size) -> dict[str, list[tuple[str, float]]]:
    """Return one to five phases by workload, such that all runs take the requested hours."""
    names = [entry["name"] for entry in plan["workloads"]]
    counts = {name: 1 + number % 5 for number, name in enumerate(names)}
    each_s = size.hours * 3600 / len(plan["runs"])
    dearer = sum(DEARER[: size.configurations]) / size.configurations
    phases = {}
    for name, count in counts.items():
        left_s = each_s - SETTLE_S - TAIL_S - count * PAUSE_S
        length_s = max(left_s / count / dearer, 0.2)
        phases[name] = [(f"phase-{number}", length_s) for number in range(count)]
    return phases


def _energies(power: Power, generator: np.random.Generator) -> Iterator[Floats]:
    """Yield the energy of each rail up to the end of each frame, in J."""
    noise_j = np.zeros(RAILS)
    for first, count in chunks(int(power.end_s * FRAMES_HZ) // PIECE_FRAMES * PIECE_FRAMES):
        ends_s = (first + np.arange(1, count + 1)) / FRAMES_HZ
        energy_j = np.zeros((count, RAILS))
        for rail, name in CHANNELS.items():
            noise_w = NOISE_W * (generator.random(count) - 0.5)
            energy_j[:, int(rail)] = noise_j[int(rail)] + np.cumsum(noise_w) / FRAMES_HZ
            noise_j[int(rail)] = energy_j[-1, int(rail)]
            energy_j[:, int(rail)] += power.all_at(name, ends_s)
        yield energy_j
