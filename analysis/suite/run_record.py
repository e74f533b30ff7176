"""One run.json (`fde-run/1`): whether it counts, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.suite.origin import ORDER
from analysis.suite.records import TAIL, Counter, LeftOut, Phase, Run
from instrumentation.sources.counter import Reading

RUN_FORMAT = "fde-run/1"


def refusal(document: Mapping[str, Any], plan_sha256: object) -> str:
    """Why a readable run counts for nothing; empty if it counts."""
    found = document["format"]
    if found != RUN_FORMAT:
        return f"run.json has the format {found!r}, this version reads {RUN_FORMAT!r}"
    if document["plan_sha256"] != plan_sha256:
        return "it was made by another plan"
    if document["status"] != "finished":
        return str(document.get("void_reason") or "void, without a reason")
    return "" if document["proof"]["ok"] else "the configuration was not the planned one"


def parse(document: Mapping[str, Any]) -> Run:
    """The run. Raises KeyError, TypeError or ValueError where it is not complete."""
    phases = tuple(_phase(entry) for entry in document["phases"])
    if not any(phase.name != TAIL for phase in phases):
        raise ValueError("it has no phases")
    origin = str(document["origin"])
    if origin not in ORDER:
        raise ValueError(f"origin {origin!r}")
    return Run(
        run_id=str(document["run_id"]),
        block=int(document["block"]),
        configuration=str(document["configuration"]),
        workload=str(document["workload"]),
        boot_id=str(document["boot_id"]),
        origin=origin,
        t_start_ns=int(document["t_start_ns"]),
        t_end_ns=int(document["t_end_ns"]),
        phases=phases,
        pyrapl=document.get("pyrapl"),
        proof=document["proof"],
        checks=tuple(document.get("checks") or ()),
        perf=document.get("perf"),
        started_wall=str(document.get("started_wall") or ""),
        program=str(document.get("program") or ""),
        cpus=int(document["cpus"]) if document.get("cpus") else None,
        left_out=tuple(
            LeftOut(str(e["what"]), str(e["reason"])) for e in document.get("left_out") or ()
        ),
        kept={str(k): str(v) for k, v in (document.get("kept") or {}).items()},
        disks=dict(document.get("disks") or {}),
    )


def _phase(entry: Mapping[str, Any]) -> Phase:
    phase = Phase(
        name=str(entry["name"]),
        t_start_ns=int(entry["t_start_ns"]),
        t_end_ns=int(entry["t_end_ns"]),
        counters=tuple(_counter(counter) for counter in entry.get("counters") or ()),
        work={str(k): float(v) for k, v in (entry.get("work") or {}).items()},
        own_cpu_s=_seconds(entry.get("own_cpu_s")),
        cpu_busy_s=_seconds(entry.get("cpu_busy_s")),
    )
    if phase.t_end_ns <= phase.t_start_ns:
        raise ValueError(f"phase {phase.name} ends before it starts")
    return phase


def _seconds(value: Any) -> float | None:
    return None if value is None else float(value)


def _counter(entry: Mapping[str, Any]) -> Counter:
    flags = entry.get("flags") or ()
    limit = entry.get("max_range_uj")
    return Counter(
        source=str(entry["source"]),
        zone=str(entry["zone"]),
        start=_reading(entry.get("start")),
        end=_reading(entry.get("end")),
        max_range_uj=int(limit) if limit else None,
        flags=tuple(flags.split() if isinstance(flags, str) else (str(f) for f in flags)),
    )


def _reading(entry: Mapping[str, Any] | None) -> Reading | None:
    if entry is None or entry.get("energy_uj") is None:
        return None
    return Reading(int(entry["t_before_ns"]), int(entry["t_after_ns"]), int(entry["energy_uj"]))
