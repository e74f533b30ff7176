"""The files of a suite folder (data contract: data/README.md), written from known power."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.files import sha256_of
from contract.journal import SKIPPED
from controller.session import seal
from instrumentation import decode
from instrumentation.simulators.smartpower3 import SmartPower3Simulator
from instrumentation.trace import StreamWriter

Floats = npt.NDArray[np.float64]
Marks = list[tuple[str, float, float]]  # phase, begin and end in the controller's seconds
COMPONENTS = ("system", "drive", "package-0", "dram")


class Power:
    """Piecewise constant power of the components in W; its integral is the truth.

    With a `ripple`, a share, it is above and below by turns each second, with the same joules: no
    machine draws so even a power that a meter reads the same for minutes.
    """

    def __init__(self, ripple: float = 0.0) -> None:
        self.ripple = ripple
        self._t_s: list[float] = [0.0]
        self._energy_j: list[list[float]] = [[0.0] * len(COMPONENTS)]
        self._known: tuple[Floats, Floats] | None = None

    @property
    def end_s(self) -> float:
        """End of the last stretch."""
        return self._t_s[-1]

    def add(self, seconds: float, watts: Sequence[float]) -> tuple[float, float]:
        """Add a stretch of constant power, by component; returns its begin and end."""
        begin = self.end_s
        end = begin + seconds
        for sign in (1, -1) * (int(seconds // 2) if self.ripple else 0):
            self._stretch(self.end_s + 1.0, [w * (1 + sign * self.ripple) for w in watts])
        self._stretch(end, watts)
        return begin, end

    def _stretch(self, end_s: float, watts: Sequence[float]) -> None:
        seconds = end_s - self.end_s
        last = self._energy_j[-1]
        self._t_s.append(end_s)
        self._energy_j.append([e + w * seconds for e, w in zip(last, watts, strict=True)])
        self._known = None

    def add_run(
        self,
        phases: Iterable[tuple[str, float, Sequence[float]]],
        rest_w: Sequence[float],
        rests_s: tuple[float, float],
        tail: tuple[float, Sequence[float]],
    ) -> Marks:
        """Add a run: phases (name, seconds, W) with rests around each, and a tail (seconds, W)."""
        before_s, between_s = rests_s
        self.add(before_s, rest_w)
        marks: Marks = []
        for name, seconds, watts in phases:
            marks.append((name, *self.add(seconds, watts)))
            self.add(between_s, rest_w)
        return [*marks, ("tail", *self.add(*tail))]

    def at(self, name: str, t_s: float) -> float:
        """Return the joules of a component since the beginning."""
        return float(self.all_at(name, np.array([t_s]))[0])

    def all_at(self, name: str, t_s: Floats) -> Floats:
        """Return the joules of a component since the beginning at many instants."""
        if self._known is None:
            self._known = np.array(self._t_s), np.array(self._energy_j)
        times, energies = self._known
        return np.interp(t_s, times, energies[:, COMPONENTS.index(name)])


@dataclass(frozen=True)
class Clocks:
    """Offsets and skews of the target's and the meter's clocks against the controller's."""

    target_offset_ns: int = 398_000_000
    target_skew: float = 12e-6
    device_skew: float = -25e-6

    def target_ns(self, controller_s: float) -> int:
        """Return the target's clock at an instant of the controller's."""
        return round(controller_s * 1e9 * (1 + self.target_skew)) + self.target_offset_ns


RANGE_UJ = 262_143_328_850
ZONES = ("package-0", "dram")
BOOT = "5f0c6d3e-0000-4000-8000-000000000001"
CHANNELS = {"0": "system", "1": "drive"}
CPUS, OWN_CPU_S = 4, 0.01
BURST = 5  # round trips one after another


@dataclass(frozen=True)
class FinishedRun:
    """A finished run; `work` by phase.

    `extra` is copied into run.json. `busy` is the part of all CPUs that the phases keep busy;
    None leaves it out.
    """

    planned: Mapping[str, Any]
    marks: Marks
    parameters: Mapping[str, Any] = field(default_factory=dict)
    work: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    busy: float | None = None


@dataclass
class Record:
    """Events of a suite, for the files that the target and the clock link write.

    `skipped` is the reason by run_id. Counters begin at `counter_start_uj`. `zones` are those of
    RAPL, `channels` those of the meter.
    """

    plan: Mapping[str, Any]
    power: Power = field(default_factory=Power)
    clocks: Clocks = field(default_factory=Clocks)
    counter_start_uj: int = 5_000_000_000
    rapl_step_s: float = 0.1
    zones: Sequence[str] = ZONES
    channels: Mapping[str, str] = field(default_factory=lambda: CHANNELS)
    started_wall: str = "2026-01-01T00:00:00Z"
    runs: list[FinishedRun] = field(default_factory=list)
    states: list[tuple[float, str, str]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def state(self, name: str, run_id: str = "", t_s: float | None = None) -> None:
        """Write a line of the journal, now or at an instant of the controller's clock."""
        self.states.append((self.power.end_s if t_s is None else t_s, name, run_id))

    def finish(self, run: FinishedRun) -> None:
        """Finish a run from its first mark until now."""
        self.runs.append(run)
        self.state("running", run.planned["run_id"], run.marks[0][1])
        self.state("finished", run.planned["run_id"])

    def read(self, zone: str, t_s: float) -> dict[str, int]:
        """Return a reading of a counter, as run.json and rapl.jsonl hold it."""
        return self.read_all(zone, np.array([t_s]))[0]

    def read_all(self, zone: str, t_s: Floats) -> list[dict[str, int]]:
        """Return readings of a counter at many instants."""
        readings = []
        for instant, used_j in zip(t_s.tolist(), self.power.all_at(zone, t_s), strict=True):
            target_ns = self.clocks.target_ns(instant)
            uj = (self.counter_start_uj + round(float(used_j) * 1e6)) % (RANGE_UJ + 1)
            readings.append(
                {"t_before_ns": target_ns - 500, "t_after_ns": target_ns + 500, "energy_uj": uj}
            )
        return readings

    def write(
        self,
        folder: Path,
        generator: np.random.Generator,
        provenance: Mapping[str, Any],
        burst_every_s: float | None = None,
    ) -> None:
        """Write plan.json, runs/, journal.jsonl, clock.jsonl, provenance/."""
        dump(folder / "plan.json", self.plan)
        for run in self.runs:
            _write_run(folder / "runs" / run.planned["run_id"], run, self)
        lines = _journal(self.states, self.clocks)
        for line in lines:
            if line["run_id"] in self.skipped:
                line["cause"], line["detail"] = SKIPPED, self.skipped[line["run_id"]]
        write_journal(folder, lines)
        end_s = self.power.end_s
        bursts = max(2, round(end_s / burst_every_s)) if burst_every_s else 6
        write_lines(folder / "clock.jsonl", clock_lines(end_s, self.clocks, generator, bursts))
        for name in ("before.json", "after.json"):
            dump(folder / "provenance" / name, provenance)


def _write_run(folder: Path, run: FinishedRun, record: Record) -> None:
    """Write run.json and rapl.jsonl."""
    clock = record.clocks.target_ns
    start, end = run.marks[0][1], run.marks[-1][2]
    document = {
        "format": "fde-run/1",
        **{key: run.planned[key] for key in ("run_id", "block", "configuration", "workload")},
        "plan_sha256": record.plan["sha256"],
        "boot_id": BOOT,
        "parameters": dict(run.parameters),
        "started_wall": record.started_wall,
        "status": "finished",
        "void_reason": None,
        "t_start_ns": clock(start),
        "t_end_ns": clock(end),
        "origin": record.plan["origin"],
        "phases": [_phase(mark, record, run) for mark in run.marks],
        "other_sources": {
            "pyrapl": {
                "t_start_ns": clock(start),
                "t_end_ns": clock(end),
                "duration_us": round((end - start) * 1e6),
                "zones": [_pyrapl(zone, record, start, end) for zone in record.zones],
            }
        },
        "proof": {"ok": True, "mismatches": []},
        "checks": [],
        **run.extra,
    }
    times = np.arange(start, end, record.rapl_step_s, dtype=np.float64)
    by_zone = [
        [{"zone": zone, **at} for at in record.read_all(zone, times)] for zone in record.zones
    ]
    samples = [line for lines in zip(*by_zone, strict=True) for line in lines]
    folder.mkdir(parents=True)
    write_lines(folder / "rapl.jsonl", samples)
    dump(folder / "run.json", {**document, "rapl_sha256": sha256_of(folder / "rapl.jsonl")})


def _phase(mark: tuple[str, float, float], record: Record, run: FinishedRun) -> dict[str, Any]:
    name, begin, end = mark
    busy_s = {} if run.busy is None else {"cpu_busy_s": run.busy * (end - begin) * CPUS}
    counters = [
        {
            "source": "powercap",
            "zone": zone,
            "start": record.read(zone, begin),
            "end": record.read(zone, end),
            "max_range_uj": RANGE_UJ,
            "flags": [],
        }
        for zone in record.zones
    ]
    return {
        "name": name,
        "t_start_ns": record.clocks.target_ns(begin),
        "t_end_ns": record.clocks.target_ns(end),
        "counters": counters,
        "work": dict(run.work.get(name, {})),
        "own_cpu_s": OWN_CPU_S,
        **busy_s,
    }


def _pyrapl(zone: str, record: Record, start: float, end: float) -> dict[str, Any]:
    first, last = record.read(zone, start), record.read(zone, end)
    return {
        "zone": zone,
        "energy_uj": last["energy_uj"] - first["energy_uj"] - 40,
        "own_start": first,
        "own_end": last,
    }


def _journal(states: Sequence[tuple[float, str, str]], clocks: Clocks) -> list[dict[str, Any]]:
    """Build the lines of journal.jsonl from (controller's seconds, state, run_id)."""
    return [
        {
            "seq": seq,
            "t_mono_ns": clocks.target_ns(t_s),
            "boot_id": BOOT,
            "state": state,
            "run_id": run_id,
            "detail": "",
            "cause": "failed" if state == "void" else "",
            "facts": {},
        }
        for seq, (t_s, state, run_id) in enumerate(states)
    ]


def clock_lines(
    total_s: float, clocks: Clocks, generator: np.random.Generator, bursts: int = 6
) -> list[dict[str, Any]]:
    """Build bursts of round trips, forth about as long as back."""
    lines = []
    for t_s in np.linspace(0.5, total_s - 0.5, bursts):
        for i in range(BURST):
            forth_s, back_s = generator.uniform(2e-4, 6e-4, 2)
            sent = t_s + 0.01 * i
            lines.append(
                {
                    "t_send_ns": round(sent * 1e9),
                    "t_target_ns": clocks.target_ns(sent + forth_s),
                    "t_receive_ns": round((sent + forth_s + back_s) * 1e9),
                    "boot_id": BOOT,
                }
            )
    return lines


@dataclass(frozen=True)
class Line:
    """A SmartPower3 and the arrival of its lines. `lost_s`: seconds without samples."""

    accuracy: Mapping[str, Any]
    interval_ms: int = 50
    lost_s: tuple[float, float] | None = None
    reopen_after_loss: bool = True


def write_meter(suite: Path, record: Record, line: Line, generator: np.random.Generator) -> None:
    """Write the meter's stream, with late bunches, and its decoded samples."""
    power, folder = record.power, suite / "meters" / "meter0"
    folder.mkdir(parents=True)
    document = {
        "format": "fde-meter/2",
        "name": folder.name,
        "kind": "smartpower3",
        "port": "pty",
        "baud": 115200,
        "channels": dict(record.channels),
        "origin": record.plan["origin"],
        "settings": {"interval_ms": line.interval_ms},
        "timing": "device",
        "arrival_delay_limit_s": 0.02,
        "accuracy": dict(line.accuracy),
    }
    dump(folder / "meter.json", document)
    writer = StreamWriter(folder / "stream.raw")
    writer.append(0, b"")
    step_s = line.interval_ms / 1000 * (1 + record.clocks.device_skew)
    ends_s = step_s * np.arange(1, int(power.end_s / step_s), dtype=np.float64)
    used_j = np.stack([power.all_at(name, ends_s) for name in CHANNELS.values()], axis=1)
    sent = SmartPower3Simulator(line.interval_ms, t_ms=4_000).advance(used_j)
    length = len(sent) // len(ends_s)
    arrived_s = 0.0
    lost = False
    for k, end_s in enumerate(ends_s.tolist()):
        if line.lost_s and line.lost_s[0] <= end_s <= line.lost_s[1]:
            lost = True
            continue
        if lost and line.reopen_after_loss:
            writer.append(round(end_s * 1e9), b"")
        lost = False
        delay_s = float(generator.exponential(8e-4)) + (0.35 if (k + 1) % 61 < 6 else 0.0)
        arrived_s = max(arrived_s, end_s + 3e-4 + delay_s)  # a port hands bytes over in order
        writer.append(round(arrived_s * 1e9), sent[k * length : (k + 1) * length])
    writer.close()
    decode.write_samples(folder)
    seal.mark_samples(suite)


def write_manifest(folder: Path) -> None:
    """Seal the folder in its present state."""
    sums = {str(file.relative_to(folder)): sha256_of(file) for file in sorted(seal.files(folder))}
    dump(folder / seal.MANIFEST, {"format": seal.FORMAT, "files": sums})


def dump(path: Path, document: Any) -> None:
    """Write a JSON file, creating its folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")


def write_journal(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write journal.jsonl, with the sums of the present runs in its `finished` lines."""
    complete = []
    for line in lines:
        path = folder / "runs" / str(line["run_id"]) / "run.json"
        finished = line["state"] == "finished" and path.exists()
        facts = {"sha256": sha256_of(path)} if finished else {}
        complete.append({**line, "facts": {**line.get("facts", {}), **facts}})
    write_lines(folder / "journal.jsonl", complete)


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write a file of JSON lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
