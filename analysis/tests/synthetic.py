"""A whole suite folder whose joules are known beforehand (data contract: data/README.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from analysis.manifest import canonical_sha256
from instrumentation import decode
from instrumentation.simulators.smartpower3 import SmartPower3Simulator
from instrumentation.trace import StreamWriter

DERIVED = ("energy.parquet", "summary.parquet", "summary.csv", "report.html", "report.ipynb")
CONFIGURATIONS = ("plain", "opal", "dmcrypt-aes128", "dmcrypt-aes256")
STACKS: Mapping[str, Mapping[str, Any]] = {
    "plain": {"kind": "plain", "disk": "plain"},
    "opal": {"kind": "opal", "disk": "sed"},
    "dmcrypt-aes128": {
        "kind": "dmcrypt",
        "disk": "plain",
        "cipher": "aes-xts-plain64",
        "key_bits": 128,
        "sector_size": 4096,
    },
    "dmcrypt-aes256": {
        "kind": "dmcrypt",
        "disk": "plain",
        "cipher": "aes-xts-plain64",
        "key_bits": 256,
        "sector_size": 4096,
    },
}
PHASES: Mapping[str, Mapping[str, float]] = {
    "file_io": {"write-small": 0.8, "read-small": 0.6, "write-large": 1.2, "read-large": 0.9},
    "kernel_tree": {"copy": 0.4, "untar": 1.4, "tar": 2.0, "delete": 0.3},
    "kernel_grep": {"grep-1": 1.1},
    "sql": {"create": 0.2, "load": 0.8, "query": 1.0, "drop": 0.2},
    "video": {"play": 2.0},
    "idle": {"idle": 1.0},
}
SLOWER = {"plain": 1.0, "opal": 1.012, "dmcrypt-aes128": 1.25, "dmcrypt-aes256": 1.34}
TIED_TO_TIME = ("video", "idle")
RANGE_UJ = 262_143_328_850
REST_S, TAIL_S = 0.5, 0.4
BOOT = "5f0c6d3e-0000-4000-8000-000000000001"
ASSUMPTIONS = {
    "sed_extra_price": 25.0,
    "currency": "USD",
    "electricity_price_per_kwh": 0.12,
    "battery_wh": 50.0,
    "life_years": 5.0,
    "runs_per_day": 50.0,
}


@dataclass
class Options:
    """What to make, and what to break."""

    blocks: int = 3
    configurations: Sequence[str] = CONFIGURATIONS
    workloads: Sequence[str] = tuple(PHASES)
    origin: str = "modelled"
    interval_ms: int = 50
    noise: float = 0.004
    seed: int = 7
    target_offset_ns: int = 398_000_000
    target_skew: float = 12e-6
    device_skew: float = -25e-6
    counter_start_uj: int = 5_000_000_000
    lost_windows: tuple[float, float] | None = None  # controller seconds without samples
    reopen_after_loss: bool = True
    accuracy: Mapping[str, Any] = field(
        default_factory=lambda: {"relative_limit": 0.03, "absolute_limit_w": 0.0005, "source": "-"}
    )


@dataclass
class Truth:
    """Joules by (run_id, phase, component), and where each run lies on the controller's clock."""

    energy_j: dict[tuple[str, str, str], float]
    runs: dict[str, tuple[float, float]]
    phases_s: dict[tuple[str, str], tuple[float, float]]


class Power:
    """Piecewise constant power of the components; its integral is the truth."""

    names = ("system", "drive", "package-0", "dram")
    idle = (21.0, 2.2, 4.0, 0.9)

    def __init__(self) -> None:
        self.t_s: list[float] = [0.0]
        self.energy_j: dict[str, list[float]] = {name: [0.0] for name in self.names}

    def add(self, seconds: float, watts: Sequence[float]) -> tuple[float, float]:
        """A stretch of constant power; returns its begin and end."""
        begin = self.t_s[-1]
        self.t_s.append(begin + seconds)
        for name, power in zip(self.names, watts, strict=True):
            self.energy_j[name].append(self.energy_j[name][-1] + power * seconds)
        return begin, self.t_s[-1]

    def at(self, name: str, t_s: float) -> float:
        """Joules of a component since the beginning."""
        return float(np.interp(t_s, self.t_s, self.energy_j[name]))


def write_suite(folder: Path, options: Options | None = None, seal: bool = True) -> Truth:
    """Make the folder; returns what a perfect analysis would find."""
    o = options or Options()
    folder.mkdir(parents=True)
    generator = np.random.default_rng(o.seed)
    plan = _plan(o, generator)
    power, truth = Power(), Truth({}, {}, {})
    power.add(3.0, Power.idle)
    states: list[tuple[float, str, str]] = [(power.t_s[-1], "suite-started", "")]
    documents = {}
    for run in plan["runs"]:
        marks = _enact(run, o, generator, power, truth)
        documents[run["run_id"]] = (run, marks)
        start, end = truth.runs[run["run_id"]]
        states += [
            (start - 0.2, "switching", run["run_id"]),
            (start - 0.1, "running", run["run_id"]),
        ]
        states.append((end + 0.01, "finished", run["run_id"]))
    power.add(3.0, Power.idle)
    states.append((power.t_s[-1] - 1, "suite-finished", ""))

    _dump(folder / "plan.json", plan)
    for run_id, (run, marks) in documents.items():
        _write_run(
            folder / "runs" / run_id, run, marks, plan_sha256=plan["sha256"], power=power, o=o
        )
    _write_lines(folder / "journal.jsonl", _journal(states, o))
    _write_lines(folder / "clock.jsonl", _clock(power.t_s[-1], o, generator))
    _write_meter(folder / "meters" / "meter0", power, o, generator)
    provenance = {"kernel": "6.12.0-test", "packages": {"cryptsetup": "2.7.5"}}
    _dump(folder / "provenance" / "before.json", provenance)
    _dump(folder / "provenance" / "after.json", provenance)
    _dump(folder / "timing.json", {"wall_s": 100.0, "measuring_s": 60.0, "other_s": 40.0})
    if seal:
        write_manifest(folder)
    return truth


def write_manifest(folder: Path) -> None:
    """Seal the folder as it stands."""
    files = sorted(f for f in folder.rglob("*") if f.is_file() and f.name not in DERIVED)
    sums = {
        str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest()
        for f in files
        if f.name != "manifest.json"
    }
    _dump(folder / "manifest.json", {"format": "fde-manifest/1", "files": sums})


def target_ns(controller_s: float, o: Options) -> int:
    """The target's clock at an instant of the controller's."""
    return round(controller_s * 1e9 * (1 + o.target_skew)) + o.target_offset_ns


def _plan(o: Options, generator: np.random.Generator) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    for block in range(o.blocks):
        for configuration in generator.permutation(list(o.configurations)):
            for workload in generator.permutation(list(o.workloads)):
                index = len(runs)
                runs.append(
                    {
                        "run_id": f"{index:04d}-b{block:02d}-{configuration}-{workload}",
                        "index": index,
                        "block": block,
                        "configuration": str(configuration),
                        "workload": str(workload),
                    }
                )
    plan = {
        "format": "fde-plan/1",
        "suite_id": "synthetic-bench-20260101T000000Z",
        "suite": "synthetic",
        "scale": "known joules",
        "host": "bench",
        "seed": o.seed,
        "blocks": o.blocks,
        "created_wall": "2026-01-01T00:00:00+00:00",
        "origin": o.origin,
        "configurations": [{"name": name, **STACKS.get(name, {})} for name in o.configurations],
        "workloads": [{"name": name, "parameters": {}} for name in o.workloads],
        "runs": runs,
        "settle_s": REST_S,
        "analysis": {"contrasts": [["plain", "opal"], ["opal", "dmcrypt-aes128"]], "margin": 0.02},
        "assumptions": ASSUMPTIONS,
    }
    return {**plan, "sha256": canonical_sha256(plan)}


Marks = list[tuple[str, float, float]]


def _enact(
    run: Mapping[str, Any],
    o: Options,
    generator: np.random.Generator,
    power: Power,
    truth: Truth,
) -> Marks:
    """Let a run happen: its phases with short rests between them, then the tail."""
    power.add(REST_S, Power.idle)
    start = power.t_s[-1]
    marks: Marks = []
    tied = run["workload"] in TIED_TO_TIME
    for phase, seconds in PHASES[run["workload"]].items():
        factor = 1.0 if tied else SLOWER[run["configuration"]]
        length = seconds * factor * float(np.exp(generator.normal(0, 0 if tied else o.noise)))
        scatter = float(np.exp(generator.normal(0, o.noise)))
        busy = 0.1 if run["workload"] == "idle" else 1.0
        extra = np.array([9.0, 1.6, 6.0, 0.7]) * busy
        extra[1] += 0.15 if run["configuration"] == "opal" else 0.0
        watts = (np.array(Power.idle) + extra) * scatter
        begin, end = power.add(length, watts.tolist())
        marks.append((phase, begin, end))
        power.add(0.12, Power.idle)
    begin = power.t_s[-1]
    power.add(TAIL_S, [w * 1.05 for w in Power.idle])
    marks.append(("tail", begin, power.t_s[-1]))
    run_id = str(run["run_id"])
    truth.runs[run_id] = (start, power.t_s[-1])
    for phase, begin, end in marks:
        truth.phases_s[run_id, phase] = (begin, end)
        for name in Power.names:
            truth.energy_j[run_id, phase, name] = power.at(name, end) - power.at(name, begin)
    for name in Power.names:
        truth.energy_j[run_id, "all", name] = sum(
            truth.energy_j[run_id, phase, name] for phase, _, _ in marks if phase != "tail"
        )
    return marks


def _write_run(
    folder: Path,
    run: Mapping[str, Any],
    marks: Marks,
    *,
    plan_sha256: str,
    power: Power,
    o: Options,
) -> None:
    def read(zone: str, t_s: float) -> dict[str, int]:
        now = target_ns(t_s, o)
        uj = (o.counter_start_uj + round(power.at(zone, t_s) * 1e6)) % (RANGE_UJ + 1)
        return {"t_before_ns": now - 500, "t_after_ns": now + 500, "energy_uj": uj}

    zones = ("package-0", "dram")
    start, end = marks[0][1], marks[-1][2]
    phases = [
        {
            "name": name,
            "t_start_ns": target_ns(a, o),
            "t_end_ns": target_ns(b, o),
            "counters": [
                {
                    "source": "powercap",
                    "zone": zone,
                    "start": read(zone, a),
                    "end": read(zone, b),
                    "max_range_uj": RANGE_UJ,
                    "flags": [],
                }
                for zone in zones
            ],
            "work": {"bytes": 41943040, "files": 4},
            "own_cpu_s": 0.01,
        }
        for name, a, b in marks
    ]
    pyrapl = [
        {
            "zone": zone,
            "pyrapl_uj": read(zone, end)["energy_uj"] - read(zone, start)["energy_uj"] - 40,
            "own_start": read(zone, start),
            "own_end": read(zone, end),
        }
        for zone in zones
    ]
    document = {
        "format": "fde-run/1",
        **{key: run[key] for key in ("run_id", "block", "configuration", "workload")},
        "plan_sha256": plan_sha256,
        "boot_id": BOOT,
        "parameters": {},
        "started_wall": "2026-01-01T00:00:00Z",
        "status": "finished",
        "void_reason": None,
        "t_start_ns": target_ns(start, o),
        "t_end_ns": target_ns(end, o),
        "origin": o.origin,
        "phases": phases,
        "pyrapl": {
            "t_start_ns": target_ns(start, o),
            "t_end_ns": target_ns(end, o),
            "duration_us": round((end - start) * 1e6),
            "zones": pyrapl,
        },
        "proof": {"ok": True, "mismatches": []},
        "checks": [],
    }
    _dump(folder / "run.json", document)
    samples = [
        {"zone": zone, **read(zone, float(t))} for t in np.arange(start, end, 0.1) for zone in zones
    ]
    _write_lines(folder / "rapl.jsonl", samples)


def _journal(states: Sequence[tuple[float, str, str]], o: Options) -> list[dict[str, Any]]:
    return [
        {
            "seq": seq,
            "t_mono_ns": target_ns(t_s, o),
            "boot_id": BOOT,
            "state": state,
            "run_id": run_id,
            "detail": "",
        }
        for seq, (t_s, state, run_id) in enumerate(states)
    ]


def _clock(total_s: float, o: Options, generator: np.random.Generator) -> list[dict[str, Any]]:
    """Bursts of round trips; the way there takes as long as the way back, give or take."""
    lines = []
    for t_s in np.linspace(0.5, total_s - 0.5, 6):
        for i in range(5):
            there, back = generator.uniform(2e-4, 6e-4, 2)
            sent = t_s + 0.01 * i
            lines.append(
                {
                    "t_send_ns": round(sent * 1e9),
                    "t_target_ns": target_ns(sent + there, o),
                    "t_receive_ns": round((sent + there + back) * 1e9),
                    "boot_id": BOOT,
                }
            )
    return lines


def _write_meter(folder: Path, power: Power, o: Options, generator: np.random.Generator) -> None:
    """What a SmartPower3 would have sent, late bunches and all, and its decoded samples."""
    folder.mkdir(parents=True)
    description = {
        "format": "fde-meter/2",
        "name": folder.name,
        "kind": "smartpower3",
        "port": "pty",
        "baud": 115200,
        "channels": {"0": "system", "1": "drive"},
        "origin": o.origin,
        "settings": {"interval_ms": o.interval_ms},
        "timing": "device",
        "arrival_delay_limit_s": 0.02,
        "accuracy": o.accuracy,
    }
    _dump(folder / "meter.json", description)
    writer = StreamWriter(folder / "stream.raw")
    writer.append(0, b"")
    simulator = SmartPower3Simulator(o.interval_ms, t_ms=4_000)
    step_s = o.interval_ms / 1000 * (1 + o.device_skew)
    arrived_s = 0.0
    lost = False
    for k in range(1, int(power.t_s[-1] / step_s)):
        t_s = k * step_s
        used_j = [power.at(name, t_s) for name in ("system", "drive")]
        line = simulator.advance(np.array([used_j]))
        if o.lost_windows and o.lost_windows[0] <= t_s <= o.lost_windows[1]:
            lost = True
            continue
        if lost and o.reopen_after_loss:
            writer.append(round(t_s * 1e9), b"")
        lost = False
        delay_s = float(generator.exponential(8e-4)) + (0.35 if k % 61 < 6 else 0.0)
        arrived_s = max(arrived_s, t_s + 3e-4 + delay_s)  # a port hands bytes over in order
        writer.append(round(arrived_s * 1e9), line)
    writer.close()
    decode.write_samples(folder)


def _dump(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")


def _write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
