"""Whether the finished runs are those that the journal closed: sums, boots and last states."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.suite.documents import lines
from contract import strict_json

SUM = "sha256:"


@dataclass
class _Last:
    """A run as the journal left it: its last state, and of its last try the boots of its lines."""

    state: str = ""
    detail: str = ""
    boots: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Trail:
    """What was found to be well, and what was not; both as sentences."""

    said: tuple[str, ...]
    problems: tuple[str, ...]


def trail(folder: Path, counted: Collection[str]) -> Trail:
    """Hold the runs that are `counted` as finished against journal, run.json and rapl.jsonl.

    Suites that were made before the journal told sums lack them; that is said, and is no problem.
    """
    last = _last(folder)
    problems, without = [], 0
    for run_id in sorted(counted):
        run = last.get(run_id, _Last())
        if run.state != "finished":
            state = run.state or "no state at all"
            problems.append(f"Run {run_id} is counted, but the journal leaves it at {state}.")
            continue
        document, found = _run(folder / "runs" / run_id, run, problems)
        if len({*run.boots, str(document.get("boot_id"))}) > 1:
            problems.append(f"Run {run_id} did not begin and finish in one boot of the target.")
        without += not found
    told = len(counted) - without
    said = []
    if told and not problems:
        said.append(
            f"{told} finished runs have the sums that the journal closed them with, each in one "
            "boot of the target."
        )
    if without:
        some = "the runs" if not told else f"{without} of the runs"
        said.append(f"The journal tells no sums of {some}: it is that of an older version.")
    return Trail(tuple(said), tuple(problems))


def _last(folder: Path) -> dict[str, _Last]:
    """By run, from its last `running` line on."""
    found: dict[str, _Last] = {}
    for line in lines(folder / "journal.jsonl", []):
        run_id = str(line.get("run_id") or "")
        run = found.setdefault(run_id, _Last())
        run.state, run.detail = str(line.get("state")), str(line.get("detail") or "")
        if run.state == "running":
            run.boots.clear()
        if run.state in ("running", "proving", "finished"):
            run.boots[str(line.get("boot_id"))] = None
    return found


def _run(folder: Path, run: _Last, problems: list[str]) -> tuple[Mapping[str, Any], bool]:
    """run.json, and whether there are sums; what has another sum than was told is a problem."""
    path = folder / "run.json"
    try:
        data = path.read_bytes()
        document = strict_json.loads(data.decode())
    except (OSError, ValueError):
        problems.append(f"Run {folder.name} is counted, but its run.json cannot be read.")
        return {}, True
    told = run.detail.startswith(SUM)
    if told and run.detail.removeprefix(SUM) != hashlib.sha256(data).hexdigest():
        problems.append(f"run.json of {folder.name} is not the one that the journal closed.")
    samples = document.get("rapl_sha256")
    if samples is not None and samples != _sum(folder / "rapl.jsonl"):
        problems.append(f"rapl.jsonl of {folder.name} is not the one that its run.json names.")
    return document, told


def _sum(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
