"""Latencies of a run's requests as fio reports them: runs/<id>/kept/<phase>.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from contract import names, strict_json
from contract.documents import RunDocument
from contract.schema import COUNT

FIO = "fio"
MOST_BYTES = 2**20  # a report of fio's has some 4 KB
# By fio's keys: names for people, and the least number of requests that shows the percentile.
PERCENTILES = {"50.000000": ("p50", 1), "99.000000": ("p99", 100), "99.900000": ("p99.9", 1000)}


@dataclass(frozen=True)
class Completions:
    """The number of requests, and their latencies by percentile."""

    N: COUNT = 0
    percentile: Mapping[str, COUNT] = field(default_factory=dict)


@dataclass(frozen=True)
class Requests:
    """The requests of a job one way, from submission to completion, in ns."""

    clat_ns: Completions = Completions()


@dataclass(frozen=True)
class Job:
    """The part of a job in fio's report that is read here."""

    read: Requests
    write: Requests


@dataclass(frozen=True)
class Report:
    """fio's report."""

    jobs: tuple[Job]


@dataclass(frozen=True)
class Latency:
    """A phase's completion latencies one way (`read`, `write`), in ns by `p50`, `p99`, `p99.9`.

    Percentiles that need more requests are left out.
    """

    phase: str
    way: str
    ns: Mapping[str, int]


def read(
    folder: Path, runs: Iterable[RunDocument], problems: list[str]
) -> dict[str, tuple[Latency, ...]]:
    """Read the latencies in fio's reports, by run; runs without a report are left out.

    The number of unreadable reports becomes a sentence in `problems`.
    """
    faults: list[str] = []
    by_run: dict[str, tuple[Latency, ...]] = {}
    for run in runs:
        phases = [phase.name for phase in run.measured_phases if names.safe(phase.name)]
        for phase in phases if run.program == FIO else []:
            path = folder / "runs" / run.run_id / "kept" / f"{phase}.json"
            try:
                latencies = parse(phase, path) if path.is_file() else []
            except (OSError, ValueError) as error:
                faults.append(f"{run.run_id}/{path.name}: {error}")
                continue
            if latencies:
                by_run[run.run_id] = (*by_run.get(run.run_id, ()), *latencies)
    if faults:
        problems.append(f"{len(faults)} report(s) of fio cannot be read ({faults[0]}).")
    return by_run


def parse(phase: str, path: Path) -> list[Latency]:
    """Parse the latencies in a report of fio. Raises ValueError, OSError."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    (job,) = strict_json.parse(Report, path.read_bytes()).jobs
    latencies = []
    for way, requests in (("read", job.read.clat_ns), ("write", job.write.clat_ns)):
        ns = {
            name: requests.percentile[key]
            for key, (name, least) in PERCENTILES.items()
            if least <= requests.N and key in requests.percentile
        }
        if any(low > high for low, high in pairwise(ns.values())) or 0 in ns.values():
            raise ValueError(f"the percentiles of {way} do not rise from above 0")
        latencies += [Latency(phase, way, ns)] if ns else []
    return latencies
