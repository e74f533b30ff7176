"""A suite of a size that the report must still be quick with: hours of a meter at 1 kHz.

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
from instrumentation import decode
from instrumentation.meters.powersensor3 import PowerSensor3
from instrumentation.simulators.powersensor3 import PowerSensor3Simulator
from instrumentation.trace import StreamWriter
from validation.synthetic.folder import (
    Clocks,
    Done,
    Floats,
    Marks,
    Power,
    Target,
    clock_lines,
    dump,
    journal,
    write_journal,
    write_lines,
    write_manifest,
    write_run,
)
from validation.synthetic.suite import ASSUMPTIONS, STACKS, frozen, shuffled

FRAMES_HZ, FRAME_BYTES, PIECE_FRAMES, RAILS = 1000, 18, 5, 4
CHUNK_FRAMES = 500_000
DELAY_NS = 200_000  # from the end of a piece's last frame to its arrival
CHANNELS = {"0": "system", "2": "drive"}
REST_W = (10.0, 1.2, 3.0, 0.8)
BUSY_W = (21.0, 2.4, 9.0, 1.5)
NOISE_W = 0.5
SETTLE_S, PAUSE_S, TAIL_S = 1.0, 0.05, 0.8
BURST_EVERY_S = 120.0
DEARER = (1.0, 1.01, 1.2, 1.3, 1.25, 1.6, 1.5, 1.1)
_PIECE = np.dtype(
    [("t_ns", "<u8"), ("length", "<u4"), ("frames", np.uint8, (PIECE_FRAMES, FRAME_BYTES))]
)


@dataclass(frozen=True)
class Size:
    """Of the suite; up to eight configurations and ten workloads."""

    blocks: int = 40
    configurations: int = 8
    workloads: int = 10
    hours: float = 10.0


def write_large_suite(folder: Path, size: Size | None = None, seed: int = 36) -> None:
    """Make the sealed suite folder; it takes a minute or two, and about 1.2 GB, at full size."""
    size = size or Size()
    folder.mkdir(parents=True)
    generator = np.random.default_rng(seed)
    plan = _plan(size, seed, generator)
    phases = _phases(plan, size)
    order = {entry["name"]: i for i, entry in enumerate(plan["configurations"])}
    power, clocks = Power(), Clocks()
    power.add(1.0, REST_W)
    states: list[tuple[float, str, str]] = [(power.end_s, "suite-started", "")]
    done = []
    for run in plan["runs"]:
        states.append((power.end_s, "switching", run["run_id"]))
        factor = DEARER[order[run["configuration"]]]
        done.append(Done(run, _enact(phases[run["workload"]], factor, power, generator)))
        states += [
            (done[-1].marks[0][1], "running", run["run_id"]),
            (power.end_s, "finished", run["run_id"]),
        ]
    power.add(1.0, REST_W)
    states.append((power.end_s, "suite-finished", ""))
    dump(folder / "plan.json", plan)
    target = Target(power, clocks, SYNTHETIC)
    for one in done:
        write_run(folder / "runs" / one.run["run_id"], one, target, plan["sha256"])
    write_journal(folder, journal(states, clocks))
    bursts = max(2, round(power.end_s / BURST_EVERY_S))
    write_lines(folder / "clock.jsonl", clock_lines(power.end_s, clocks, generator, bursts))
    _write_meter(folder / "meters" / "meter0", power, generator)
    for name in ("before.json", "after.json"):
        dump(folder / "provenance" / name, {"synthetic": plan["scale"]})
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
            "format": "fde-plan/3",
            "suite_id": "large-synthetic-20260101T000000Z",
            "suite": "large",
            "scale": f"SYNTHETIC: {size.hours:g} h at 1 kHz, to see how long a report takes",
            "host": "synthetic",
            "seed": seed,
            "blocks": size.blocks,
            "created_wall": "2026-01-01T00:00:00+00:00",
            "origin": SYNTHETIC,
            "configurations": configurations,
            "workloads": [{"name": name, "parameters": {}} for name in workloads],
            "runs": shuffled(size.blocks, names, workloads, generator),
            "settle_s": SETTLE_S,
            "rapl_hz": 10,
            "analysis": {"contrasts": [["plain", name] for name in names[1:]], "margin": 0.02},
            "assumptions": ASSUMPTIONS,
        }
    )


def _phases(plan: Mapping[str, Any], size: Size) -> dict[str, list[tuple[str, float]]]:
    """By workload, one to five phases, such that all runs together take the hours asked for."""
    names = [entry["name"] for entry in plan["workloads"]]
    counts = {name: 1 + number % 5 for number, name in enumerate(names)}
    each_s = size.hours * 3600 / len(plan["runs"])
    dearer = sum(DEARER[: size.configurations]) / size.configurations
    found = {}
    for name, count in counts.items():
        left_s = each_s - SETTLE_S - TAIL_S - count * PAUSE_S
        length_s = max(left_s / count / dearer, 0.2)
        found[name] = [(f"phase-{number}", length_s) for number in range(count)]
    return found


def _enact(
    phases: list[tuple[str, float]], factor: float, power: Power, generator: np.random.Generator
) -> Marks:
    power.add(SETTLE_S, REST_W)
    marks: Marks = []
    for phase, length_s in phases:
        seconds = length_s * factor * float(np.exp(generator.normal(0, 0.01)))
        marks.append((phase, *power.add(seconds, BUSY_W)))
        power.add(PAUSE_S, REST_W)
    marks.append(("tail", *power.add(TAIL_S, REST_W)))
    return marks


def _write_meter(folder: Path, power: Power, generator: np.random.Generator) -> None:
    folder.mkdir(parents=True)
    simulator = PowerSensor3Simulator(FRAMES_HZ)
    meter = PowerSensor3(CHANNELS, simulator.settings)
    described = {
        "format": "fde-meter/2",
        "name": folder.name,
        "kind": meter.kind,
        "port": "pty",
        "channels": CHANNELS,
        "origin": SYNTHETIC,
        **meter.described(),
    }
    dump(folder / "meter.json", described)
    stream = folder / "stream.raw"
    _write_talk(stream, meter, simulator)
    with stream.open("ab") as file:
        for first, energy_j in _energies(power, generator):
            file.write(_pieces(simulator.advance(energy_j), first))
    decode.write_samples(folder)


def _energies(power: Power, generator: np.random.Generator) -> Iterator[tuple[int, Floats]]:
    """Number of the frames before, and the energy of each rail up to the end of each frame."""
    frames = int(power.end_s * FRAMES_HZ) // PIECE_FRAMES * PIECE_FRAMES
    noise_j = np.zeros(RAILS)
    for first in range(0, frames, CHUNK_FRAMES):
        count = min(CHUNK_FRAMES, frames - first)
        ends_s = (first + np.arange(1, count + 1)) / FRAMES_HZ
        energy_j = np.zeros((count, RAILS))
        for rail, name in CHANNELS.items():
            noise_w = NOISE_W * (generator.random(count) - 0.5)
            energy_j[:, int(rail)] = noise_j[int(rail)] + np.cumsum(noise_w) / FRAMES_HZ
            noise_j[int(rail)] = energy_j[-1, int(rail)]
            energy_j[:, int(rail)] += power.all_at(name, ends_s)
        yield first, energy_j


def _write_talk(stream: Path, meter: PowerSensor3, simulator: PowerSensor3Simulator) -> None:
    """The opening of the port, and what driver and meter say to each other first."""
    writer = StreamWriter(stream)
    writer.append(0, b"")
    meter.opened()
    while request := meter.request(0):
        meter.on_request_sent(request, 0)
        writer.append(0, request, sent=True)
        if answer := simulator.receive(request):
            meter.feed(answer, 0)
            writer.append(0, answer)
    writer.close()


def _pieces(data: bytes, first: int) -> bytes:
    """Frames of the stream file; `first` is the number of the meter's frames before."""
    frames = np.frombuffer(data, np.uint8).reshape(-1, PIECE_FRAMES, FRAME_BYTES)
    pieces = np.zeros(len(frames), _PIECE)
    last = first + PIECE_FRAMES * np.arange(1, len(frames) + 1)
    pieces["t_ns"] = last * 1_000_000_000 // FRAMES_HZ + DELAY_NS
    pieces["length"] = PIECE_FRAMES * FRAME_BYTES
    pieces["frames"] = frames
    return pieces.tobytes()
