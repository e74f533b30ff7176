"""All tables that are derived from a suite, and their files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from analysis.energy.energy import ALL, BETWEEN, COUNTERS, PYRAPL, energy_table, reference_rows
from analysis.energy.response import SLOW_FLAG
from analysis.energy.watermarks import WatermarkTrust, disagreements, watermarks
from analysis.flags import flag_note, reserves
from analysis.spreadsheet import csv_bytes
from analysis.stats.contrasts import Answer, Contrast, contrast_table
from analysis.stats.disks import Condition, conditions, file_notes, findings
from analysis.stats.drift_check import MOVED, DriftCheck, drift_check
from analysis.stats.family import Family, as_table, judge, summary_rows
from analysis.stats.same_work import (
    Cell,
    UnequalWork,
    for_same_work,
    phase_works,
    unequal_work,
    work_notes,
)
from analysis.stats.summary import SummaryRow
from analysis.stats.voids import void_tries
from analysis.suite import bundle, manifest
from analysis.suite.clocks import TargetClock
from analysis.suite.incidents import IncidentLog, incident_log
from analysis.suite.records import TAIL, Suite, SuiteError, worst_origin
from analysis.suite.suite_folder import PLAN, read
from contract import derived, files
from contract.command_results import PhaseWork
from contract.notes import Note
from instrumentation.sources.standing import ABOVE_TOTAL, BELOW_PART, IGNORES_LOAD, STANDS_STILL

COVERED = 0.98  # share of a measured phase below which the missing part is filled in


def measured_phases(energy: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of measured phases."""
    return energy.filter(~pl.col("phase").is_in([ALL, BETWEEN, TAIL]))


def uncovered_phases(energy: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of measured phases whose meter covers less than `COVERED`."""
    metered = ~pl.col("source").is_in(COUNTERS)
    return measured_phases(energy).filter(metered & (pl.col("coverage") < COVERED))


def uncovered(energy: pl.DataFrame) -> list[str]:
    """Return the runs with an uncovered phase."""
    return sorted(uncovered_phases(energy)["run_id"].unique())


def flag_notes(energy: pl.DataFrame) -> list[Note]:
    """Return a note on each flag of measured phases, by source."""
    rows = energy.filter(~pl.col("phase").is_in([ALL, BETWEEN]))
    words = rows.with_columns(flag=pl.col("flags").str.split(" ")).explode("flag")
    notes = []
    for (source, flag), bearing in words.filter(pl.col("flag") != "").group_by(
        "source", "flag", maintain_order=True
    ):
        where = bearing["component"].unique(maintain_order=True).to_list()
        number, total = (
            frame.n_unique(("run_id", "phase")) for frame in (bearing, rows.filter(source=source))
        )
        notes.append(flag_note(flag, number, total, f"phases by {source}", where, source=source))
    return notes


def reservations(
    suite: Suite, energy: pl.DataFrame, drift_check: DriftCheck | None
) -> Iterator[str]:
    """Yield a sentence for each reservation: unfinished, void runs, gaps, wrong times, drift."""
    if suite.unfinished:
        yield "A comparison gets its verdict once all of its planned blocks are complete."
    if suite.void:
        blocks = sorted({run.block + 1 for run in suite.void})
        where = f"block{'s' * (len(blocks) > 1)} {', '.join(map(str, blocks))}"
        yield f"{_runs(len(suite.void))} void to the end, in {where}. Pairs with them are missing."
    missed = uncovered(energy)
    if missed:
        yield (
            f"In {_counted(len(missed))} a meter saw less than {COVERED:.0%} of a phase. What is "
            "missing is filled in if there is anything to fill it with, and flagged: "
            f"{', '.join(missed[:3])}{' …' * (len(missed) > 3)}."
        )
    yield from (note.sentence for note in flag_notes(energy) if reserves(note.code))
    if drift_check is not None and drift_check.verdict == MOVED:
        yield (
            f"The machine drifted by {abs(drift_check.worst.change) * 100:.1f} % from first to "
            f"last (limit {drift_check.limit * 100:g} %). Ratios within blocks hold; joules are "
            "those of a machine that changed."
        )


STOOD = {
    STANDS_STILL: "it did not move while the machine worked, in these or in neighbouring runs",
    BELOW_PART: "it counted less than its parts",
    ABOVE_TOTAL: "it counted more than what includes it",
    IGNORES_LOAD: "it did not follow a load watermark",
}
WAYS = {"rapl": "measure on the machine itself, and look at its kernel's log"}


def stood_still(energy: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence for each zone and channel that stood still, so that runs lack its joules."""
    # Zones are named, not their sum; a sleeping graphics processor takes no energy.
    left_out = ["package", "uncore"]
    zones = energy.filter(
        ~pl.col("component").is_in(left_out), pl.col("source") != PYRAPL, phase="all"
    )
    counts = zones.group_by("source", "component", maintain_order=True).agg(
        pl.len().alias("runs"),
        *(pl.col("flags").str.split(" ").list.contains(c).sum().alias(c) for c in STOOD),
    )
    for row in counts.iter_rows(named=True):
        for code, cause in STOOD.items():
            if row[code]:
                way = WAYS.get(row["source"], "look at the meter and its wires, and restart it")
                yield (
                    f"{row['source']} {row['component']} has no joules in {row[code]} of "
                    f"{row['runs']} runs: {cause}. Before the next suite, {way}."
                )


def _counted(number: int) -> str:
    return f"{number} run{'s' * (number != 1)}"


def _runs(number: int) -> str:
    return f"{_counted(number)} {'is' if number == 1 else 'are'}"


@dataclass(frozen=True)
class Results:
    """The energy table and the summary of a suite (columns: data/README.md).

    `all_energy` includes the rows of meters that only cross-check.
    """

    suite: Suite
    clock: TargetClock
    all_energy: pl.DataFrame
    watermarks: tuple[WatermarkTrust, ...]

    @cached_property
    def measured_energy(self) -> pl.DataFrame:
        """The rows of reference meters, as measured."""
        return reference_rows(self.suite, self.all_energy)

    @cached_property
    def unequal_work(self) -> Mapping[Cell, UnequalWork]:
        """The phases in which runs did unequal work."""
        return unequal_work([self.suite], [self.measured_energy])

    @cached_property
    def energy(self) -> pl.DataFrame:
        """The rows of reference meters, scaled to the same work in all runs."""
        return for_same_work(self.measured_energy, self.unequal_work)

    @property
    def origin(self) -> str:
        """The worst origin of any figure, which the report must state at its top."""
        return worst_origin([*self.energy["origin"].unique(), self.suite.plan.origin])

    @cached_property
    def family(self) -> Family:
        """All comparisons, those with a verdict judged as one family."""
        return judge(self.suite, self.energy, self.unequal_work)

    @cached_property
    def summary(self) -> pl.DataFrame:
        """Joules, ratio and verdict by workload × configuration × source × component."""
        return as_table(self.summary_rows)

    @cached_property
    def summary_rows(self) -> tuple[SummaryRow, ...]:
        """The rows of the summary."""
        return tuple(summary_rows(self.suite, self.energy, self.family))

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """Configurations over all working workloads at once, the declared ones first."""
        return self.family.contrasts

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The declared comparisons within a configuration."""
        return self.family.answers

    @cached_property
    def incidents(self) -> IncidentLog:
        """The interruptions of the suite."""
        return incident_log(self.suite)

    @cached_property
    def drift_check(self) -> DriftCheck | None:
        """The suite's drift check; None if it has none."""
        return drift_check(self.suite, self.energy, self.clock)

    @cached_property
    def disks(self) -> list[Condition]:
        """The condition of the disk under each configuration."""
        return conditions(self.suite)

    @cached_property
    def flags(self) -> list[Note]:
        """Notes on the flags of compared joules, with their phases, and on disks that are files."""
        return [*flag_notes(self.energy), *file_notes(self.suite)]

    @cached_property
    def work_notes(self) -> list[Note]:
        """Notes on workloads that are scaled to the same work, as their runs did unequal work."""
        return list(work_notes(self.suite, self.unequal_work))

    @cached_property
    def works(self) -> list[PhaseWork]:
        """The account of the work of each phase; empty if no run has one."""
        return phase_works(self.suite)

    @property
    def reservations(self) -> list[str]:
        """Sentences on all that limits the suite's figures; empty if nothing does."""
        return [
            *stood_still(self.all_energy),
            *self._of_voids(),
            *reservations(self.suite, self.energy, self.drift_check),
            *findings(self.suite, self.disks),
        ]

    def _of_voids(self) -> Iterator[str]:
        """Yield a sentence for each configuration with void tries."""
        for tries in void_tries(self.suite):
            if not tries.void:
                continue
            label = self.suite.label(tries.configuration)
            sentence = f"{tries.void} of {tries.tries} attempts of {label} were void and repeated."
            c = next(
                (
                    contrast.comparison
                    for contrast in self.contrasts
                    if (contrast.base, contrast.other) == (self.suite.baseline, tries.configuration)
                ),
                None,
            )
            if c is not None and c.first_tries is not None:
                accepted, first = (
                    f"{100 * (ratio - 1):+.1f} %".replace("-", "−")
                    for ratio in (c.ratio, c.first_tries.ratio)
                )
                sentence += (
                    f" By first attempts its change over all workloads is {first}, by accepted ones"
                    f" {accepted}; its interval includes both."
                )
            yield sentence


def results(folder: Path, raw: bool = False) -> Results:
    """Read a suite, if `raw` from its raw bytes, and derive its tables. Raises SuiteError."""
    return results_of(read(folder, raw))


def results_of(suite: Suite, energy: pl.DataFrame | None = None) -> Results:
    """Derive a suite's results; `energy` is its table if it is already computed."""
    clock = TargetClock.fit(suite.clock)
    marks = tuple(watermarks(suite, clock))
    if energy is None:
        energy = energy_table(suite, clock, marks)
    slow = set(energy.filter(pl.col("flags").str.contains(SLOW_FLAG))["source"])
    suite = replace(suite, problems=(*suite.problems, *disagreements(marks, slow)))
    return Results(suite, clock, energy, marks)


def write(results: Results) -> None:
    """Write energy.parquet, summary.parquet, summary.csv and contrasts.csv, each atomically."""
    folder = results.suite.folder
    metadata = manifest.metadata(folder)
    tables = {"energy.parquet": results.all_energy, "summary.parquet": results.summary}
    for name, frame in tables.items():
        parquet = io.BytesIO()
        frame.write_parquet(parquet, metadata=metadata)
        files.write(folder / name, [parquet.getvalue()])
    for name, content in csv_files(results).items():
        files.write(folder / name, [content])
    mark(results, "energy.parquet")


def csv_files(results: Results) -> dict[str, bytes]:
    """Return the tables for spreadsheets by the names of their files; lists become texts."""
    contrasts = contrast_table(results.contrasts).with_columns(pl.col("workloads").list.join(" "))
    return {"summary.csv": csv_bytes(results.summary), "contrasts.csv": csv_bytes(contrasts)}


def mark(results: Results, *names: str) -> None:
    """Record that these files were derived here from the sealed suite, if its seal holds."""
    if results.suite.seal_holds:
        derived.mark(results.suite.folder, names, manifest.source(results.suite.folder))


_MAGIC = re.compile(r"[*?[]")


def load(*folders: str | Path) -> pl.DataFrame:
    """Read the energy tables of suites: a row a run × phase × component (data/README.md).

    Each argument is a suite's folder, a bundle, or a pattern with `*`, `?` or `[`, of whose matches
    folders and bundles are read. A suite's energy.parquet is read if this code derived it here from
    the present seal; else the joules are derived again, and nothing is written. Sums of the sealed
    files are not checked: use `fde verify`. Raises SuiteError for a folder that is not a suite, a
    pattern without matches, and a suite that is named twice.
    """
    paths = [folder for name in folders for folder in _matched(name)]
    if not paths:
        raise SuiteError("no-suite-named")
    with bundle.open_suites(list(dict.fromkeys(paths))) as opened:
        tables = [energy_of(folder) for folder in opened]
    ids = [table["suite_id"][0] for table in tables if len(table)]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise SuiteError("suite-in-two-folders", suite=twice)
    return pl.concat(tables)


def _matched(name: str | Path) -> Iterator[Path]:
    """Yield the folders and bundles of a name or a pattern, in order of their names."""
    path = Path(name)
    if path.exists() or not _MAGIC.search(str(name)):
        yield path.resolve()
        return
    matching = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
    suites = [
        folder.resolve() for folder in matching if (folder / PLAN).exists() or folder.is_file()
    ]
    if not suites:
        raise SuiteError("no-suite-matches", pattern=name)
    yield from suites


def energy_of(folder: Path) -> pl.DataFrame:
    """Return a suite's energy table, from its folder or derived again. Raises SuiteError."""
    table = folder / "energy.parquet"
    if manifest.is_current(table):
        return pl.read_parquet(files.for_polars(table))
    return energy_table(read(folder))
