"""Read a suite folder. What is missing becomes a sentence in `Suite.problems`, not an exception."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from analysis.columns import schema as schema_of
from analysis.suite import controller_boots, latencies, manifest, preconditioned, recordings
from analysis.suite.documents import read_document, read_lines
from analysis.suite.records import Run, Suite, SuiteError, VoidRun, leaves
from contract import journal as journals
from contract import names, schema, strict_json
from contract import plan as plans
from contract.assumptions import parse_assumptions
from contract.documents import AfterDocument, WatermarkLine
from contract.journal import SKIPPED, Entry
from contract.plan import SuitePlan
from contract.schema import COUNT
from contract.timing import Timing
from instrumentation.clock import ClockReading
from instrumentation.sources.counter import Reading
from instrumentation.sources.zones import not_counted

PLAN = "plan.json"
RUN_FORMAT = "fde-run/1"


@dataclass(frozen=True)
class _AnyRun:
    """The part of run.json that every run has, void ones too."""

    format: str
    plan_sha256: str
    status: str
    void_reason: str | None = None


def parse_run(document: object, plan_sha256: str) -> Run | str:
    """Parse run.json; return the reason instead if the run is void.

    Raises ValueError if it is not complete.
    """
    stated = schema.read(_AnyRun, document)
    if stated.format != RUN_FORMAT:
        return f"run.json has the format {stated.format!r}, this version reads {RUN_FORMAT!r}"
    if stated.plan_sha256 != plan_sha256:
        return "it was made by another plan"
    if stated.status != "finished":
        return stated.void_reason or "void, without a reason"
    run = schema.read(Run, document)
    if not run.proof.ok:
        return "the configuration was not the planned one"
    if not run.measured_phases:
        raise ValueError("it has no phases")
    for phase in run.phases:
        if phase.t_end_ns <= phase.t_start_ns:
            raise ValueError(f"phase {phase.name} ends before it starts")
    return run


def read(folder: Path, raw: bool = False, results: Path | None = None) -> Suite:
    """Read the suite in `folder`; with `raw`, meters are decoded again from their raw bytes.

    `results` has journal.jsonl and runs/ in place of `folder`, if they are not fetched yet.
    Raises SuiteError if there is no readable plan, or it is of another version.
    """
    results = results or folder
    plan, frozen = _plan(folder)
    seal = manifest.check(folder)
    problems = list(seal.problems)
    if not frozen:
        problems.append("plan.json was changed after it was frozen: its SHA-256 does not match.")
    journal, bad = journals.readable(results / "journal.jsonl")
    if bad:
        problems.append(f"journal.jsonl is cut short or damaged: {bad} line(s) cannot be read.")
    if not (results / "journal.jsonl").exists():
        problems.append("The journal is missing: no run can show that it ended, so all are void.")
    last = {entry.run_id: entry for entry in journal}  # the suite's own under ""
    if last and ("" not in last or last[""].state != "suite-finished"):
        problems.append("The suite did not come to its end: the journal has no closing line.")
    runs, void = _runs(results, plan, last, problems)
    skipped = {run_id for run_id, entry in last.items() if entry.cause == SKIPPED}
    recorded = recordings.read(folder, raw, problems)
    clock = list(read_lines(ClockReading, folder / "clock.jsonl", problems))
    axis = controller_boots.place_on_one_axis(clock, recorded, runs)
    assumptions = None
    try:
        assumptions = parse_assumptions(plan.assumptions) if plan.assumptions else None
    except ValueError as error:
        problems.append(f"The plan's assumptions are invalid ({error}): no payback is computed.")
    after = read_document(AfterDocument, folder / "provenance" / "after.json", problems)
    suite = Suite(
        folder=folder,
        plan=plan,
        frozen=frozen,
        runs=tuple(runs),
        void=tuple(run for run in void if run.run_id not in skipped),
        skipped=tuple(run for run in void if run.run_id in skipped),
        meters=tuple(recordings.meters(axis.recordings, axis.shift_ns, problems)),
        clock=axis.readings,
        watermarks=tuple(read_lines(WatermarkLine, folder / "watermark.jsonl", problems)),
        before=read_document(dict[str, Any], folder / "provenance" / "before.json", problems) or {},
        locked_reads=after.locked_reads if after else {},
        timing=read_document(Timing, folder / "timing.json", []) or Timing(),
        sealed=seal.sealed,
        seal_holds=seal.sealed and not seal.problems,
        journal=tuple(journal),
        controller_boots=axis.boots,
        controller_sleeps=axis.sleeps,
        preconditioned=preconditioned.read(folder, plan, problems),
        assumptions=assumptions,
        latencies=latencies.read(results, runs, problems),
    )
    changed = [*provenance_changes(folder, problems)]
    return replace(suite, problems=(*problems, *changed, *_gaps(suite)))


def suite_id(folder: Path) -> str:
    """Return the id in the plan of the suite in `folder`. Raises SuiteError as `read` does."""
    return _plan(folder)[0].suite_id


@dataclass(frozen=True)
class _Sample:
    """A line of rapl.jsonl with a good reading."""

    zone: str
    t_before_ns: COUNT
    t_after_ns: COUNT
    energy_uj: COUNT


_SAMPLES = schema_of("zone t_before_ns:i t_after_ns:i energy_uj:i")


def rapl_table(suite: Suite, run_id: str) -> pl.DataFrame:
    """Return the good samples of all counters during a run."""
    path = suite.folder / "runs" / run_id / "rapl.jsonl"
    with suppress(OSError, pl.exceptions.PolarsError):  # no file, or damaged lines
        text = path.read_bytes()
        table = pl.read_ndjson(text, schema=_SAMPLES)
        if len(table) == text.count(b"\n"):
            return table.drop_nulls()
    lines = [astuple(line) for line in read_lines(_Sample, path, [])]
    return pl.DataFrame(lines, schema=_SAMPLES, orient="row")


def rapl_samples(suite: Suite, run_id: str) -> dict[str, list[Reading]]:
    """Return the good samples during a run by zone, in order of time."""
    samples: dict[str, list[Reading]] = {}
    ordered = rapl_table(suite, run_id).sort("t_before_ns", maintain_order=True)
    for zone, *reading in ordered.iter_rows():
        samples.setdefault(zone, []).append(Reading(*reading))
    return samples


def _plan(folder: Path) -> tuple[SuitePlan, bool]:
    """Return the plan, and whether its own sum holds."""
    if not folder.is_dir():
        raise SuiteError("no-suite-folder", folder=folder)
    if not (folder / PLAN).exists():
        raise SuiteError("no-plan", folder=folder)
    if strange := names.stranger(folder):
        raise SuiteError("strange-file", folder=folder, strange=strange)
    path = folder / PLAN
    try:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise SuiteError("json-unread", path=path) from None
    stated = document.get("format") if isinstance(document, dict) else None
    if stated != plans.FORMAT:
        named = "names no format" if stated is None else f"has the format {stated!r}"
        raise SuiteError("other-format", path=path, named=named, format=plans.FORMAT)
    try:
        plan = schema.read(SuitePlan, document)
        return plan, plan.sha256 == plans.digest(document)
    except (ValueError, RecursionError) as error:
        raise SuiteError("plan-invalid", path=path, error=error) from None


def _runs(
    folder: Path, plan: SuitePlan, last: Mapping[str, Entry], problems: list[str]
) -> tuple[list[Run], list[VoidRun]]:
    runs: list[Run] = []
    void: list[VoidRun] = []
    never = 0
    for entry in plan.runs:
        if entry.run_id not in last and not (folder / "runs" / entry.run_id).exists():
            never += 1
            continue
        path = folder / "runs" / entry.run_id / "run.json"
        run = _run(path, last.get(entry.run_id), plan.sha256)
        if isinstance(run, Run):
            runs.append(run)
        else:
            void.append(
                VoidRun(entry.run_id, entry.configuration, entry.workload, entry.block, run)
            )
    if never:
        problems.append(f"{never} of {len(plan.runs)} planned runs were never made.")
    return runs, void


def _run(path: Path, last: Entry | None, plan_sha256: str) -> Run | str:
    """Return the run, or the reason why it is void."""
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
        return parse_run(document, plan_sha256)
    except ValueError as error:
        return f"run.json is not complete ({error})"


def _gaps(suite: Suite) -> Iterator[str]:
    """Yield sentences on what the suite lacks although all its files are sound."""
    runs = suite.compared_runs
    blocks = {run.block for run in runs}
    if not runs:
        yield "No run finished: there is nothing to report."
    elif len(blocks) == 1:
        yield "Only one block finished: there are figures, but no intervals and no verdicts."
    configurations = {run.configuration for run in runs}
    for name in suite.configurations:
        if runs and name not in configurations:
            yield f"Configuration {name} has no finished run: it has no figures."
    if runs and suite.baseline is None:
        yield "The plan has no configuration of kind plain: there are no ratios to one."
    if not suite.meters:
        zones = {c.zone for run in suite.runs for phase in run.phases for c in phase.counters}
        yield f"There is no meter. {not_counted(zones)}" if zones else "There is no meter."
    for meter in suite.meters:
        if not meter.samples.records:
            yield f"Meter {meter.name} has no samples."


# Keys that count up, hold a time, or are recorded once; all others are settings and compared.
MAY_CHANGE = frozenset(
    {"boot_id", "error", "link_after", "link_before", "swaps", "used_percent", "wall"}
    | {"written_bytes"}
)
_MOST_NAMED = 5


def provenance_changes(folder: Path, problems: list[str]) -> Iterator[str]:
    """Yield a sentence for each record that differs from the one before it, naming what differs."""
    provenance = folder / "provenance"
    resumed = sorted(provenance.glob("before-resumed-*.json"), key=lambda p: (len(p.name), p.name))
    paths = [provenance / "before.json", *resumed, provenance / "after.json"]
    last: tuple[str, dict[str, str]] | None = None
    for path in paths:
        document = read_document(dict[str, Any], path, problems)
        if not document:
            continue
        current = {k: v for k, v in leaves(document) if k.rpartition(".")[2] not in MAY_CHANGE}
        if last is not None:
            before = last[1]
            differing = [
                f"{key} was {before.get(key, 'absent')}, then {current.get(key, 'absent')}"
                for key in sorted({*before, *current})
                if before.get(key) != current.get(key)
            ]
            if differing:
                unnamed = len(differing) - _MOST_NAMED
                tail = f"; and {unnamed} more" * (unnamed > 0)
                yield (
                    f"The target changed between provenance/{last[0]} and {path.name}: "
                    f"{'; '.join(differing[:_MOST_NAMED])}{tail}. Joules from before and after it "
                    "are of different configurations."
                )
        last = (path.name, current)
