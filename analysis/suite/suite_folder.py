"""Read a suite folder. What is missing becomes a sentence in `Suite.problems`, not an exception."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from analysis.suite import controller_boots, manifest, preconditioned, recordings
from analysis.suite.documents import lines, optional, seconds
from analysis.suite.records import (
    TAIL,
    Counter,
    Phase,
    Run,
    Suite,
    SuiteError,
    VoidRun,
)
from contract import documents, names, schema, strict_json
from contract import journal as journals
from contract import plan as plans
from contract.journal import SKIPPED, Entry
from contract.places import step
from instrumentation.sources.counter import Reading
from instrumentation.sources.zones import not_counted

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
    """The run. Raises ValueError where it is not complete."""
    found = schema.read(documents.RunDocument, document)
    if not any(phase.name != TAIL for phase in found.phases):
        raise ValueError("it has no phases")
    own = {
        "phases": tuple(_phase(phase) for phase in found.phases),
        "proof": document["proof"],
        "other_sources": document.get("other_sources") or {},
        "cpus": found.cpus or None,
    }
    return Run(**{**_told(found, Run), **own})


def _phase(found: documents.Phase) -> Phase:
    if found.t_end_ns <= found.t_start_ns:
        raise ValueError(f"phase {found.name} ends before it starts")
    counters = tuple(
        Counter(
            c.source,
            c.zone,
            _reading(c.start),
            _reading(c.end),
            c.max_range_uj,
            c.flags,
            c.update_ns,
        )
        for c in found.counters or ()
    )
    return Phase(**{**_told(found, Phase), "counters": counters})


def _told(document: documents.RunDocument | documents.Phase, kind: type) -> dict[str, Any]:
    """What a document says of the fields of `kind`; what it leaves out keeps its default."""
    told = {field.name: getattr(document, field.name) for field in fields(kind)}
    return {name: value for name, value in told.items() if value is not None}


def _reading(edge: documents.Edge | None) -> Reading | None:
    if edge is None or edge.energy_uj is None:
        return None
    return Reading(edge.t_before_ns, edge.t_after_ns, edge.energy_uj)


PLAN = "plan.json"


def read(folder: Path, raw: bool = False, results: Path | None = None) -> Suite:
    """Read the suite in `folder`; with `raw`, meters are decoded again from their raw bytes.

    `results` has journal.jsonl and runs/ in place of `folder`, where they are not fetched yet.
    Raises SuiteError if there is no readable plan, or it is of another version.
    """
    results = results or folder
    plan = _plan(folder)
    seal = manifest.check(folder)
    problems = list(seal.problems)
    if plan.get("sha256") != manifest.canonical_sha256(plan):
        problems.append(
            "plan.json was changed after it was frozen: its own SHA-256 does not match."
        )
    journal, bad = journals.readable(results / "journal.jsonl")
    if bad:
        problems.append(f"journal.jsonl is cut short or damaged: {bad} line(s) cannot be read.")
    last = _last_lines(results, journal, problems)
    runs, not_counted = _runs(results, plan, last, problems)
    cannot = {run_id for run_id, entry in last.items() if entry.cause == SKIPPED}
    recorded = recordings.read(folder, raw, problems)
    clock: Sequence[Mapping[str, Any]] = tuple(lines(folder / "clock.jsonl", problems))
    slept = controller_boots.sleeps(clock)
    recorded = controller_boots.cut_recordings(recorded, slept)
    clock = tuple(controller_boots.cut_lines(clock, slept))
    shift_ns = controller_boots.shifts(clock, recorded, _spans(runs))
    sleeps = sum(map(len, slept.values()))
    suite = Suite(
        folder=folder,
        plan=plan,
        runs=tuple(runs),
        void=tuple(run for run in not_counted if run.run_id not in cannot),
        skipped=tuple(run for run in not_counted if run.run_id in cannot),
        meters=tuple(recordings.meters(recorded, shift_ns, problems)),
        clock=tuple(controller_boots.shifted(clock, shift_ns)),
        watermarks=tuple(lines(folder / "watermark.jsonl", problems)),
        before=optional(folder / "provenance" / "before.json", problems),
        after=optional(folder / "provenance" / "after.json", problems),
        timing=seconds(folder / "timing.json"),
        sealed=seal.sealed,
        seal_holds=seal.sealed and not seal.problems,
        journal=tuple(journal),
        controller_boots=max(1, len(shift_ns) - sleeps),
        controller_sleeps=sleeps,
        preconditioned=preconditioned.read(folder, plan, problems),
    )
    return replace(suite, problems=(*problems, *_gaps(suite)))


def suite_id(folder: Path) -> str:
    """Which suite is in `folder`, by its plan. Raises SuiteError as `read` does."""
    return str(_plan(folder).get("suite_id", folder.name))


def rapl_readings(suite: Suite, run_id: str, zone: str) -> list[Reading]:
    """The good samples of one counter during a run, in order of time."""
    return rapl_samples(suite, run_id).get(zone, [])


def rapl_samples(suite: Suite, run_id: str) -> dict[str, list[Reading]]:
    """The good samples of all counters during a run, by zone, in order of time."""
    found: dict[str, list[Reading]] = {}
    for line in lines(suite.folder / "runs" / run_id / "rapl.jsonl", []):
        if "zone" in line and (reading := reading_of(line)) is not None:
            found.setdefault(str(line["zone"]), []).append(reading)
    for readings in found.values():
        readings.sort(key=lambda reading: reading.t_before_ns)
    return found


_PIECE_BYTES = 2**24
_SAMPLE: Mapping[str, pl.DataType] = {
    "zone": pl.String(),
    **dict.fromkeys(("t_before_ns", "t_after_ns", "energy_uj"), pl.Int64()),
}


def rapl_tables(suite: Suite) -> Iterator[pl.DataFrame]:
    """As `rapl_samples`, of all runs: tables of their columns and `run_id`, some runs in each."""
    runs: list[tuple[str, bytes]] = []
    for run in suite.runs:
        try:
            text = (suite.folder / "runs" / run.run_id / "rapl.jsonl").read_bytes()
        except OSError:
            continue  # it has none
        runs.append((run.run_id, text))
        if sum(len(text) for _, text in runs) > _PIECE_BYTES:
            yield _rapl_table(suite, runs)
            runs = []
    if runs:
        yield _rapl_table(suite, runs)


def _rapl_table(suite: Suite, runs: Sequence[tuple[str, bytes]]) -> pl.DataFrame:
    lengths = [text.count(b"\n") for _, text in runs]
    names = pl.Series("run_id", [run_id for run_id, _ in runs], pl.String())
    try:
        found = pl.read_ndjson(b"".join(text for _, text in runs), schema=_SAMPLE)
    except pl.exceptions.PolarsError:  # some lines are damaged
        found = pl.DataFrame(schema=_SAMPLE)
    if len(found) == sum(lengths):
        of_run = names.gather(np.repeat(np.arange(len(runs)), lengths))
        return found.with_columns(of_run).drop_nulls()
    rows = [
        (zone, one.t_before_ns, one.t_after_ns, one.energy_uj, run_id)
        for run_id, _ in runs
        for zone, samples in rapl_samples(suite, run_id).items()
        for one in samples
    ]
    return pl.DataFrame(rows, schema={**_SAMPLE, "run_id": pl.String()}, orient="row")


def reading_of(value: Any) -> Reading | None:
    """A reading as it stands in run.json or rapl.jsonl; None where it is no whole one, as of a
    read that failed."""
    try:
        return Reading(int(value["t_before_ns"]), int(value["t_after_ns"]), int(value["energy_uj"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _plan(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise SuiteError(
            f"There is no suite folder {folder}: name one that `{step('run')}` has made."
        )
    if strange := names.stranger(folder):
        raise SuiteError(
            f"In {folder}, {strange}, and a suite has files and folders alone: take it out."
        )
    path = folder / PLAN
    try:
        plan = strict_json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SuiteError(f"{folder} is not a suite: it has no plan.json.") from None
    except (OSError, ValueError):
        raise SuiteError(f"{path} cannot be read as JSON: fetch the suite again.") from None
    found = plan.get("format") if isinstance(plan, dict) else None
    if found != plans.FORMAT:
        named = "names no format" if found is None else f"has the format {found!r}"
        raise SuiteError(
            f"{path} {named}, this version reads {plans.FORMAT!r}: "
            "use the version of the testbed that made it."
        )
    if not names.safe(plan.get("suite_id", folder.name)):
        raise SuiteError(f"{path} gives the suite a name that none has: fetch the suite again.")
    return dict(plan)


def _spans(runs: Iterable[Run]) -> dict[str, tuple[int, int]]:
    """By boot of the target, from when to when finished runs went, on its clock."""
    found: dict[str, tuple[int, int]] = {}
    for run in runs:
        begin, end = found.get(run.boot_id, (run.t_start_ns, run.t_end_ns))
        found[run.boot_id] = min(begin, run.t_start_ns), max(end, run.t_end_ns)
    return found


def _last_lines(folder: Path, journal: Iterable[Entry], problems: list[str]) -> dict[str, Entry]:
    """The last line of each run in the journal; the suite's own under ''."""
    if not (folder / "journal.jsonl").exists():
        problems.append(
            "The journal is missing: no run can show that it finished, so all are void."
        )
    last = {entry.run_id: entry for entry in journal}
    if last and ("" not in last or last[""].state != "suite-finished"):
        problems.append("The suite did not come to its end: the journal has no closing line.")
    return last


def _runs(
    folder: Path,
    plan: Mapping[str, Any],
    last: Mapping[str, Entry],
    problems: list[str],
) -> tuple[list[Run], list[VoidRun]]:
    runs: list[Run] = []
    void: list[VoidRun] = []
    never = 0
    given = plan.get("runs")
    planned = given if isinstance(given, list) else []
    for entry in planned:
        try:
            run_id, block = str(entry["run_id"]), int(entry["block"])
            what = str(entry["configuration"]), str(entry["workload"])
        except (KeyError, TypeError, ValueError, OverflowError):
            problems.append("A run in plan.json lacks its id, block, configuration or workload.")
            continue
        if not names.safe(run_id):
            problems.append(f"plan.json has a run with the name {run_id!r}: it is passed over.")
            continue
        if run_id not in last and not (folder / "runs" / run_id).exists():
            never += 1
            continue
        path = folder / "runs" / run_id / "run.json"
        found = _run(path, last.get(run_id), plan.get("sha256"))
        if isinstance(found, Run):
            runs.append(found)
        else:
            void.append(VoidRun(run_id, *what, block, found))
    if never:
        problems.append(f"{never} of {len(planned)} planned runs were never made.")
    return runs, void


def _run(path: Path, last: Entry | None, plan_sha256: object) -> Run | str:
    """The run, or the reason why it is void."""
    if last is not None and last.state == "void":
        return last.detail or "void in the journal, without a reason"
    if last is None or last.state != "finished":
        state = last.state if last else "none"
        return f"no closing mark in the journal (last state: {state})"
    try:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "run.json is missing"
    except (OSError, ValueError):
        return "run.json cannot be read: it is cut short or damaged"
    try:
        return refusal(document, plan_sha256) or parse(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        return f"run.json is not complete ({error})"


def _gaps(suite: Suite) -> Iterator[str]:
    """What the suite cannot say although all its files are well."""
    runs = suite.compared_runs
    blocks = {run.block for run in runs}
    if not runs:
        yield "No run finished: there is nothing to report."
    elif len(blocks) == 1:
        yield "Only one block finished: there are figures, but no intervals and no verdicts."
    done = {run.configuration for run in runs}
    for name in suite.configurations:
        if runs and name not in done:
            yield f"Configuration {name} has no finished run: nothing can be said about it."
    if runs and suite.baseline is None:
        yield "The plan has no configuration of kind plain: there are no ratios to one."
    if not suite.meters:
        zones = {c.zone for run in suite.runs for phase in run.phases for c in phase.counters}
        yield f"There is no meter. {not_counted(zones)}" if zones else "There is no meter."
    for meter in suite.meters:
        if not meter.samples.records:
            yield f"Meter {meter.name} has no samples."
