"""A small suite, or a group of hosts, of known joules, with faults on request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.suite.records import DRIFT_CHECK
from contract.plan import digest
from validation.synthetic.folder import (
    COMPONENTS,
    Clocks,
    FinishedRun,
    Line,
    Marks,
    Power,
    Record,
    dump,
    write_manifest,
    write_meter,
)

CONFIGURATIONS = ("plain", "opal", "dmcrypt-aes128", "dmcrypt-aes256")
PLAIN = {"kind": "plain", "disk": "plain", "label": "plain", "encrypted_by": "none"}
AES = {
    **{"kind": "dmcrypt", "disk": "plain", "encrypted_by": "processor"},
    **{"cipher": "aes-xts-plain64", "sector_size": 4096},
}
AES128 = {**AES, "key_bits": 128, "label": "dm-crypt AES-128"}
AES256 = {**AES, "key_bits": 256, "label": "dm-crypt AES-256"}
STACKS: Mapping[str, Mapping[str, Any]] = {
    "plain": PLAIN,
    "opal": {"kind": "opal", "disk": "sed", "label": "Opal drive", "encrypted_by": "drive"},
    "dmcrypt-aes128": AES128,
    "dmcrypt-aes256": AES256,
    "sed-unlocked": {**PLAIN, "disk": "sed", "label": "SED, locking off"},
    "dmcrypt-aes256-on-sed": {**AES256, "disk": "sed", "label": "dm-crypt AES-256, on the SED"},
}


def stack(name: str) -> Mapping[str, Any]:
    """Return a stack of `STACKS`, or for `NAME-on-DISK` the same on that disk; empty otherwise."""
    plain, on, disk = name.partition("-on-")
    if name in STACKS or not on or plain not in STACKS:
        return STACKS.get(name, {})
    return {**STACKS[plain], "disk": disk, "label": f"{STACKS[plain]['label']}, on {disk}"}


PHASES: Mapping[str, Mapping[str, float]] = {
    "file_io": {"write-small": 0.8, "read-small": 0.6, "write-large": 1.2, "read-large": 0.9},
    "kernel_tree": {"copy": 0.4, "untar": 1.4, "tar": 2.0, "delete": 0.3},
    "kernel_grep": {"grep-1": 1.1},
    "sql": {"create": 0.2, "load": 0.8, "query": 1.0, "drop": 0.2},
    "video": {"play": 2.0},
    "idle": {"idle": 1.0},
}
DRIFT_CHECKS = 5
DRIFT_CHECK_PHASES: Mapping[str, float] = {"idle": 1.0, "busy": 1.0}
SLOWER = {"plain": 1.0, "opal": 1.012, "dmcrypt-aes128": 1.25, "dmcrypt-aes256": 1.34}
TIED_TO_TIME = ("video", "idle", DRIFT_CHECK)
IDLE_W = (21.0, 2.2, 4.0, 0.9)  # by component
DISKS_C: Mapping[str, float] = {"plain": 36.0, "sed": 37.0}  # by role, before a run
REST_S, PAUSE_S, TAIL_S = 0.5, 0.12, 0.4
WORK = {"bytes": 41943040.0, "files": 4.0}
CREATED_WALL = "2026-01-01T00:00:00+00:00"
PRECONDITION = {"passes": 2, "rounds": 25, "round_s": 60, "access": "sequential"}
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
    """Parameters of a suite, and its faults."""

    blocks: int = 3
    configurations: Sequence[str] = CONFIGURATIONS
    workloads: Sequence[str] = tuple(PHASES)
    origin: str = "modelled"
    interval_ms: int = 50
    noise: float = 0.004
    seed: int = 7
    host: str = "bench"
    group: str | None = None
    slower: Mapping[str, float] = field(default_factory=lambda: SLOWER)
    work_share: Mapping[str, float] = field(default_factory=dict)  # of `WORK` a phase, 1 if missing
    machine: Mapping[str, Any] = field(default_factory=dict)  # more of provenance/before.json
    disks_c: Mapping[str, float] = field(default_factory=lambda: DISKS_C)
    clocks: Clocks = field(default_factory=Clocks)
    counter_start_uj: int = 5_000_000_000
    lost_windows: tuple[float, float] | None = None  # controller seconds without samples
    reopen_after_loss: bool = True
    settling: Mapping[str, Sequence[float]] | None = None  # MiB/s of preconditioning, by disk
    drift_check: float | None = (
        None  # its power in the last run against the first, growing evenly; None: no drift check
    )
    accuracy: Mapping[str, Any] = field(
        default_factory=lambda: {"relative_limit": 0.03, "absolute_limit_w": 0.0005, "source": "-"}
    )


@dataclass
class Truth:
    """True joules by (run_id, phase, component), and each run's extent on that clock."""

    energy_j: dict[tuple[str, str, str], float]
    runs: dict[str, tuple[float, float]]
    phases_s: dict[tuple[str, str], tuple[float, float]]


def write_suite(folder: Path, options: Options | None = None, seal: bool = True) -> Truth:
    """Make the folder; return the result of a perfect analysis."""
    o = options or Options()
    folder.mkdir(parents=True)
    generator = np.random.default_rng(o.seed)
    plan = _plan(o, generator)
    record = Record(plan, clocks=o.clocks, counter_start_uj=o.counter_start_uj)
    truth = Truth({}, {}, {})
    power = record.power
    power.add(3.0, IDLE_W)
    record.state("suite-started")
    for run in plan["runs"]:
        run_id = run["run_id"]
        marks = _enact(run, o, generator, power)
        disks = {"disks": _disks(run, o.disks_c)}
        share = o.work_share.get(run["configuration"], 1.0)
        work = {phase: {u: share * n for u, n in WORK.items()} for phase, _, _ in marks}
        record.runs.append(FinishedRun(run, marks, work=work, extra=disks))
        start, end = truth.runs[run_id] = marks[0][1], marks[-1][2]
        truth.phases_s |= {(run_id, phase): (begin, end) for phase, begin, end in marks}
        record.state("switching", run_id, start - 0.2)
        record.state("running", run_id, start - 0.1)
        record.state("finished", run_id, end + 0.01)
    power.add(3.0, IDLE_W)
    record.state("suite-finished", t_s=power.end_s - 1)
    _true_energies(truth, power)

    provenance = {"kernel": "6.12.0-test", "packages": {"cryptsetup": "2.7.5"}, **o.machine}
    record.write(folder, generator, provenance)
    line = Line(o.accuracy, o.interval_ms, o.lost_windows, o.reopen_after_loss)
    write_meter(folder, record, line, generator)
    dump(folder / "timing.json", {"wall_s": 100.0, "measuring_s": 60.0, "other_s": 40.0})
    for role, rates in (o.settling or {}).items():
        dump(folder / "precondition" / f"{role}.json", _settled(role, rates, plan["sha256"]))
    if seal:
        write_manifest(folder)
    return truth


def _settled(role: str, rates_mib_s: Sequence[float], plan_sha256: str) -> dict[str, Any]:
    """Return the document of a disk's preconditioning, in rounds of a second."""
    rounds = [{"bytes": round(rate * 2**20), "seconds": 1.0} for rate in rates_mib_s]
    return {
        "format": "fde-precondition/1",
        "plan_sha256": plan_sha256,
        "role": role,
        "size_bytes": 2**34,
        **PRECONDITION,
        "filled": [{"bytes": 2**34, "seconds": 30.0}] * 2,
        "written": rounds,
        "interrupted": 0,
    }


def shuffled(
    blocks: int,
    configurations: Sequence[str],
    workloads: Sequence[str],
    generator: np.random.Generator,
) -> list[dict[str, Any]]:
    """Return the runs of a plan: in each block each configuration once with every workload."""
    runs: list[dict[str, Any]] = []
    for block in range(blocks):
        for configuration in generator.permutation(list(configurations)):
            for workload in generator.permutation(list(workloads)):
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
    return runs


def frozen(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Complete a plan with the fields that all synthetic plans share, and with its sum."""
    completed = {
        "format": "fde-plan/3",
        "host": "synthetic",
        "created_wall": CREATED_WALL,
        "assumptions": ASSUMPTIONS,
        **plan,
    }
    return {**completed, "sha256": digest(completed)}


def _with_drift_checks(runs: Sequence[Mapping[str, Any]], on: str) -> list[dict[str, Any]]:
    """Return the drift check before and after all runs, and at even distances among them."""
    places = [round(k * len(runs) / (DRIFT_CHECKS - 1)) for k in range(DRIFT_CHECKS)]
    checked: list[Mapping[str, Any]] = list(runs)
    for place in reversed(places):
        block = runs[min(place, len(runs) - 1)]["block"]
        checked.insert(place, {"configuration": on, "workload": DRIFT_CHECK, "block": block})
    return [
        {
            **run,
            "index": index,
            "run_id": f"{index:04d}-b{run['block']:02d}-{run['configuration']}-{run['workload']}",
        }
        for index, run in enumerate(checked)
    ]


def _plan(o: Options, generator: np.random.Generator) -> dict[str, Any]:
    runs = shuffled(o.blocks, o.configurations, o.workloads, generator)
    workloads = list(o.workloads)
    drift_check: dict[str, Any] = {}
    if o.drift_check is not None:
        on = o.configurations[0]
        runs, workloads = _with_drift_checks(runs, on), [*workloads, DRIFT_CHECK]
        drift_check = {"drift_check": {"workload": DRIFT_CHECK, "configuration": on, "limit": 0.01}}
    return frozen(
        {
            "suite_id": f"synthetic-{o.host}-20260101T000000Z",
            "suite": "synthetic",
            **({} if o.group is None else {"group": o.group}),
            "scale": "known joules",
            "host": o.host,
            "seed": o.seed,
            "blocks": o.blocks,
            "origin": o.origin,
            "disks": {
                role: {"by_id": role, "serial": _serial(role), "size_bytes": 0}
                for role in o.disks_c
            },
            "configurations": [{"name": name, **stack(name)} for name in o.configurations],
            "workloads": [{"name": name, "parameters": {}} for name in workloads],
            "runs": runs,
            **drift_check,
            **({} if o.settling is None else {"precondition": PRECONDITION}),
            "settle_s": REST_S,
            "analysis": {
                "contrasts": [["plain", "opal"], ["opal", "dmcrypt-aes128"]],
                "margin": 0.02,
            },
        }
    )


def _enact(
    run: Mapping[str, Any], o: Options, generator: np.random.Generator, power: Power
) -> Marks:
    """Add a run: its phases with short rests between them, then the tail."""
    stretches = []
    tied = run["workload"] in TIED_TO_TIME
    of_check = run["workload"] == DRIFT_CHECK
    phases = DRIFT_CHECK_PHASES if of_check else PHASES[run["workload"]]
    for phase, seconds in phases.items():
        factor = 1.0 if tied else o.slower[run["configuration"]]
        length = seconds * factor * float(np.exp(generator.normal(0, 0 if tied else o.noise)))
        scatter = float(np.exp(generator.normal(0, o.noise)))
        if of_check:
            last = o.blocks * len(o.configurations) * len(o.workloads) + DRIFT_CHECKS - 1
            scatter = (o.drift_check or 1.0) ** (run["index"] / last)
        busy = 0.1 if phase == "idle" else 1.0
        extra = np.array([9.0, 1.6, 6.0, 0.7]) * busy
        extra[1] += 0.15 if run["configuration"] == "opal" else 0.0
        watts = (np.array(IDLE_W) + extra) * scatter
        stretches.append((phase, length, watts.tolist()))
    tail = TAIL_S, [w * 1.05 for w in IDLE_W]
    return power.add_run(stretches, IDLE_W, (REST_S, PAUSE_S), tail)


def _disks(run: Mapping[str, Any], before_c: Mapping[str, float]) -> dict[str, Any]:
    """Return both disks' state around a run: the one under test writes and grows 3 K warmer."""
    disk = stack(run["configuration"]).get("disk")
    serials = {role: _serial(role) for role in before_c}
    return {
        when: {
            serial: {
                "temperature_c": before_c[role] + 3.0 * (role == disk) * is_after,
                "link": "8.0 GT/s PCIe, x4",
                "write_cache": "write back",
                "latency_tolerance_us": "25000",
                "throttled": 0,
                "written_bytes": round(1e12 + WORK["bytes"] * (2 * run["index"] + is_after)),
                "kernel_written_bytes": round(WORK["bytes"] * (2 * run["index"] + is_after)),
                "spare_percent": 100,
                "used_percent": 1,
                "errors": 0,
            }
            for role, serial in serials.items()
        }
        for is_after, when in enumerate(("before", "after"))
    } | {"limit_k": 5.0}


def _serial(role: str) -> str:
    return f"SYNTHETIC-{role.upper()}"


def _true_energies(truth: Truth, power: Power) -> None:
    """Fill in the joules of each phase, and of all but the tail."""
    for (run_id, phase), (begin, end) in truth.phases_s.items():
        for name in COMPONENTS:
            used_j = power.at(name, end) - power.at(name, begin)
            truth.energy_j[run_id, phase, name] = used_j
            whole_j = truth.energy_j.get((run_id, "all", name), 0.0)
            truth.energy_j[run_id, "all", name] = whole_j + (0.0 if phase == "tail" else used_j)


GROUP = "synthetic-20260101T000000Z"
MACHINES = (
    ("Intel(R) Core(TM) i5-7500 CPU @ 3.40GHz", "ExampleMaker A100"),
    ("AMD Ryzen 5 3600 6-Core Processor", "ExampleMaker B200"),
    ("Intel(R) Xeon(R) E-2136 CPU @ 3.30GHz", "OtherMaker C3"),
    ("ARM Neoverse-N1", "OtherMaker D4"),
)


def write_group(root: Path, dearer: Mapping[str, float], options: Options | None = None) -> Path:
    """Write suites of hosts below `root`, and return the group's folder.

    `dearer` is by host how many times as much time encryption in software adds there.
    """
    o = options or Options()
    ids = []
    for number, (host, factor) in enumerate(dearer.items()):
        slower = {
            name: 1 + (ratio - 1) * (factor if name.startswith("dmcrypt") else 1.0)
            for name, ratio in SLOWER.items()
        }
        cpu, disk = MACHINES[number % len(MACHINES)]
        machine = {
            "cpu": {"model": cpu},
            "disks": {role: {"model": f"{disk} {role}"} for role in ("plain", "sed")},
        }
        suite_id = f"synthetic-{host}-20260101T000000Z"
        member = replace(
            o, host=host, group=GROUP, slower=slower, seed=o.seed + number, machine=machine
        )
        write_suite(root / suite_id, member)
        ids.append(suite_id)
    folder = root / GROUP
    folder.mkdir()
    document = {"format": "fde-group/1", "group": GROUP, "suites": ids, "hosts": list(dearer)}
    (folder / "group.json").write_text(json.dumps(document), encoding="utf-8")
    return folder
