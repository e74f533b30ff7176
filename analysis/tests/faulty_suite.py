"""A suite that went through a night of faults, each of them known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.tests.reboots import SECOND, reboot_target
from validation.synthetic.folder import BOOT, write_journal, write_manifest
from validation.synthetic.suite import Options, Truth, write_suite

NIGHT = Options(blocks=2, interval_ms=100, drift_check=1.03, workloads=("kernel_tree", "sql"))


@dataclass(frozen=True)
class FaultySuite:
    folder: Path
    truth: Truth
    order: list[str]  # of the runs, in time
    missed: str  # the run that the meter did not see whole


def line(state: str, run_id: str = "", detail: str = "", **fields: Any) -> dict[str, Any]:
    cause = "failed" if state == "void" else ""
    names = {"boot_id": BOOT, "state": state, "run_id": run_id, "cause": cause}
    return {**names, "detail": detail, "facts": {}, **fields}


def faulty(folder: Path) -> FaultySuite:
    """Write a suite of a night full of faults.

    A power cut, a killed agent, a void try, a requested repetition, two waits, a meter silent in
    the middle of a run, one run void to the end, and drift.
    """
    calm = write_suite(folder / "calm", NIGHT)
    order = sorted(calm.runs, key=lambda run_id: calm.runs[run_id])
    tree = next(run_id for run_id in order[8:] if "kernel_tree" in run_id)
    begin, end = calm.phases_s[tree, "tar"]
    lost = (begin + 0.3, end + 6.5)
    truth = write_suite(folder / "s", replace(NIGHT, lost_windows=lost))
    at_s = truth.runs[order[4]][0] - 0.3
    reboot_target(folder / "s", at_s)
    _journal(folder / "s", order)
    write_manifest(folder / "s")
    return FaultySuite(folder / "s", truth, order, tree)


def _journal(folder: Path, order: list[str]) -> None:
    """Insert interruptions into the journal of a suite that knows of nothing."""
    path = folder / "journal.jsonl"
    lines: list[dict[str, Any]] = [json.loads(text) for text in path.read_text().splitlines()]

    def at(state: str, run_id: str) -> int:
        return next(i for i, x in enumerate(lines) if (x["state"], x["run_id"]) == (state, run_id))

    def insert(place: int, *entries: Mapping[str, Any]) -> None:
        boot = lines[place]["boot_id"]
        t_ns = lines[place]["t_mono_ns"] - 100_000_000
        for offset, line_more in enumerate(entries):
            lines.insert(place + offset, {"boot_id": boot, "t_mono_ns": t_ns + offset, **line_more})

    throttled = "The throttle counter rose by 3 during the run."
    insert(
        at("switching", order[2]),
        line("running", order[2]),
        line("void", order[2], throttled),
        line("running", order[2]),
        line("void", order[2], throttled.replace("3", "12")),
    )
    cut = {"boot_id": SECOND}
    insert(at("switching", order[4]), line("running", order[4]))
    insert(
        at("switching", order[4]),
        {**line("void", order[4], cause="target-down", facts={"during": "running"}), **cut},
        {**line("suite-started", detail="4 of 18 finished"), **cut},
        {
            **line("waiting", detail="the controller has not placed them yet", cause="secrets"),
            **cut,
        },
    )
    insert(
        at("switching", order[6]),
        {**line("running", order[6]), **cut},
        {**line("void", order[6], cause="agent-killed", facts={"during": "running"}), **cut},
        {**line("suite-started", detail="6 of 18 finished"), **cut},
        {**line("waiting", order[6], "the meter is silent", cause="held"), **cut},
    )
    detail = "meter0 saw 41 % of tar"
    insert(at("switching", order[12]), {**line("void", order[5], detail, cause="repeat"), **cut})
    insert(
        len(lines) - 1,
        {**line("running", order[5]), **cut},
        {**line("finished", order[5]), **cut},
        {**line("void", order[-2], "the drive reported an error: media"), **cut},
    )
    latest_ns: dict[str, int] = {}  # by boot: what was inserted may begin before its forerunner
    for entry in lines:
        boot = entry["boot_id"]
        latest_ns[boot] = entry["t_mono_ns"] = max(entry["t_mono_ns"], latest_ns.get(boot, 0))
    write_journal(folder, [{**x, "seq": seq} for seq, x in enumerate(lines)])
