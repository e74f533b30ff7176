"""Scale figures to the same work if runs did unequal amounts of it.

A phase that ends by time does more work on a faster configuration. Its joules, seconds and counts
are scaled to one amount of work in all runs, so that ratios are those per unit of work and sums
over phases stay joules. Phases of fixed work stay as measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import polars as pl

from analysis.energy.energy import ALL, BETWEEN, COUNTED, WORK, reference_rows
from analysis.suite.records import DRIFT_CHECK, TAIL, Phase, Suite
from contract import account
from contract.command_results import PhaseWork
from contract.notes import Note

# A phase's work is the first unit that all of its runs counted. A film's or a rest's seconds come
# before anything else it counts, and transactions before queries, which retries increase.
_FIRST = ("video_s", "idle_s", "bytes", "transactions")
MAIN_UNITS = (*_FIRST, *(unit for unit in WORK if unit not in _FIRST))
# Amounts are unequal if configurations' medians differ by more than this share; if no amount was
# planned, so that a phase may have ended by time, if any two runs do.
LIMIT = 0.01
UNPLANNED_LIMIT = 0.001
UNEQUAL_WORK = "unequal-work"
_JOULES_ERRORS = ("energy_statistical_j", "energy_type_b_j", "energy_u95_j")
_EXTENSIVE = ("duration_s", "energy_j", *WORK, *COUNTED)


@dataclass(frozen=True)
class UnequalWork:
    """A phase whose runs did unequal amounts of `unit` and are scaled to `amount`.

    `shares` has the median of each configuration's runs as a share of `amount`.
    """

    unit: str
    amount: float
    shares: Mapping[str, float]


Cell = tuple[str, str]  # workload and phase
NONE_UNEQUAL: Mapping[Cell, UnequalWork] = {}


def compared_energy(suite: Suite, energy: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of reference meters, scaled to the same work."""
    rows = reference_rows(suite, energy)
    return for_same_work(rows, unequal_work([suite], [rows]))


def unequal_work(
    suites: Sequence[Suite], energies: Sequence[pl.DataFrame]
) -> dict[Cell, UnequalWork]:
    """Return the phases in which runs of these suites did unequal work.

    Their amount is the mean on the first suite's baseline, or else on the first configuration with
    any. The drift check is left out, as its power is compared.
    """
    first = suites[0]
    planned: dict[tuple[str, str, str], set[float]] = {}
    for run in (run for suite in suites for run in suite.runs):
        for phase in run.phases:
            for name, amount in phase.planned.items():
                planned.setdefault((run.workload, phase.name, name), set()).add(amount)
    order = [*filter(None, [first.baseline]), *first.configurations]
    runs = pl.concat(energies).filter(
        ~pl.col("phase").is_in([ALL, BETWEEN, TAIL]), pl.col("workload") != DRIFT_CHECK
    )
    runs = runs.unique(["suite_id", "run_id", "phase"], keep="first", maintain_order=True)
    cells = {}
    for (workload, phase), rows in runs.partition_by(
        "workload", "phase", as_dict=True, maintain_order=True
    ).items():
        unit = next((u for u in MAIN_UNITS if rows[u].is_not_null().all()), None)
        if unit is None:
            continue
        medians = dict(rows.group_by("configuration").agg(pl.col(unit).median()).iter_rows())
        # An amount that each run determines, such as rounds in a second, is not a fixed plan.
        fixed = len(planned.get((str(workload), str(phase), unit), ())) == 1
        amounts = list(medians.values()) if fixed else rows[unit].to_list()
        if max(amounts) <= min(amounts) * (1 + (LIMIT if fixed else UNPLANNED_LIMIT)):
            continue
        first_rows = rows.filter(suite_id=rows["suite_id"][0])
        working = set(first_rows.filter(pl.col(unit) > 0)["configuration"])
        base = next((name for name in order if name in working), None)
        if base is None:
            continue
        amounts_of_base = first_rows.filter(configuration=base)[unit]
        amount = float(amounts_of_base.mean())  # type: ignore[arg-type]  # a column of numbers
        shares = {name: medians[name] / amount for name in order if name in medians}
        cells[str(workload), str(phase)] = UnequalWork(unit, amount, shares)
    return cells


def for_same_work(energy: pl.DataFrame, cells: Mapping[Cell, UnequalWork]) -> pl.DataFrame:
    """Return the energy table with these phases, and with them `all`, scaled to their amounts.

    A run that did none of the work has no figures for it. A phase without joules (too short for
    its counter) is taken to have the mean power of its run.
    """
    if not cells:
        return energy
    amounts = pl.DataFrame(
        [(*cell, work.unit, work.amount) for cell, work in cells.items()],
        schema=["workload", "phase", "_unit", "_amount"],
        orient="row",
    )
    work = pl.coalesce(pl.when(pl.col("_unit") == unit).then(pl.col(unit)) for unit in WORK)
    factor = pl.when(work > 0).then(pl.col("_amount") / work)
    rows = energy.join(amounts, on=["workload", "phase"], how="left", maintain_order="left")
    rows = rows.with_columns(_factor=pl.when(pl.col("_unit").is_null()).then(1.0).otherwise(factor))
    run = ["suite_id", "run_id", "source", "component"]
    whole_w = rows.filter(phase=ALL).select(*run, _whole_w="power_w")
    joules = pl.coalesce("energy_j", pl.col("_whole_w") * pl.col("duration_s"))
    changes = (
        rows.filter(pl.col("_unit").is_not_null())
        .join(whole_w, on=run, how="left")
        .with_columns(energy_j=joules)
        .group_by(run)
        .agg(
            *((pl.col(n) * (pl.col("_factor") - 1)).sum().alias(f"_{n}") for n in _EXTENSIVE),
            _unknown=pl.col("_factor").is_null().any(),
        )
    )
    rows = rows.join(changes, on=run, how="left", maintain_order="left")
    of_all = (pl.col("phase") == ALL) & pl.col("_unknown").is_not_null()
    scaled = {
        name: pl.when(of_all & pl.col("_unknown"))
        .then(None)
        .when(of_all)
        .then(pl.col(name) + pl.col(f"_{name}"))
        .otherwise(pl.col(name) * pl.col("_factor"))
        for name in _EXTENSIVE
    }
    touched = of_all | pl.col("_unit").is_not_null()
    share = scaled["energy_j"] / pl.col("energy_j")
    power_w = scaled["energy_j"] / scaled["duration_s"]
    return rows.with_columns(
        *(
            pl.when(touched).then(value).otherwise(pl.col(n)).alias(n)
            for n, value in scaled.items()
        ),
        *(pl.when(touched).then(pl.col(n) * share).otherwise(pl.col(n)) for n in _JOULES_ERRORS),
        pl.when(touched).then(power_w).otherwise(pl.col("power_w")).alias("power_w"),
    ).select(energy.columns)


def work_notes(suite: Suite, cells: Mapping[Cell, UnequalWork]) -> Iterator[Note]:
    """Yield a note for each workload with unequal work, with the phase that differs most."""
    for workload in suite.workloads:
        phases = [phase for name, phase in cells if name == workload]
        if not phases:
            continue
        shares = {(p, name): s for p in phases for name, s in cells[workload, p].shares.items()}
        phase, name = max(shares, key=lambda c: abs(math.log(shares[c])) if shares[c] else math.inf)
        work = cells[workload, phase]
        base, share = suite.label(next(iter(work.shares))), shares[phase, name]
        clause = f"{suite.label(name)} did {100 * share:.3g} % of the {work.unit} of {base}"
        if len(work.shares) == 1:
            clause = f"runs of {base} did different amounts of {work.unit}"
        others = f" and {len(phases) - 1} more phases" if len(phases) > 1 else ""
        yield Note(
            UNEQUAL_WORK,
            {
                "workload": workload,
                "phases": tuple(phases),
                "phase": phase,
                "unit": work.unit,
                "configuration": name,
                "share": share,
            },
            f"Unequal work in {workload}, {phase}{others}: {clause}. "
            "Energy and time are compared for the same work.",
        )


# Amounts by unit: the columns of a row, and the fields of a phase.
_BY_UNIT = {"planned": "planned", "reported": "reported", "counted": "work"}
_Key = tuple[str, str, str]  # workload, phase and configuration


def phase_works(suite: Suite) -> list[PhaseWork]:
    """Return a row a workload × phase × configuration × unit, with medians over finished runs.

    Empty if no run has an account. A phase without a unit has a row with an empty one.
    """
    phases: dict[_Key, list[Phase]] = {}
    codes: dict[_Key, set[str]] = {}
    for run in suite.compared_runs:
        for phase in run.measured_phases:
            phases.setdefault((run.workload, phase.name, run.configuration), []).append(phase)
        for check in run.checks:
            if check.name == account.NAME and not check.ok:
                key = run.workload, str(check.facts.get("phase", "")), run.configuration
                codes.setdefault(key, set()).add(check.cause)
    # Counted work and written bytes alone, which all runs have, are not an account.
    every = [phase for same in phases.values() for phase in same]
    if not any(p.planned or p.reported or p.disk_read_bytes is not None for p in every):
        return []
    places = [suite.workloads, list(dict.fromkeys(key[1] for key in phases)), suite.configurations]

    def place(key: _Key) -> list[int]:
        return [o.index(n) if n in o else len(o) for o, n in zip(places, key, strict=True)]

    return [
        _row(key, unit, phases[key], tuple(sorted(codes.get(key, ()))))
        for key in sorted(phases, key=place)
        for unit in dict.fromkeys(
            unit for p in phases[key] for field in _BY_UNIT.values() for unit in getattr(p, field)
        )
        or [""]
    ]


def _row(key: _Key, unit: str, phases: Sequence[Phase], codes: tuple[str, ...]) -> PhaseWork:
    amounts = {
        name: _median(getattr(phase, field).get(unit) for phase in phases)
        for name, field in _BY_UNIT.items()
    }
    traffic = {name: _median(getattr(phase, name) for phase in phases) for name in TRAFFIC}
    columns: dict[str, Any] = {**amounts, **traffic, "codes": codes}
    return PhaseWork(*key, unit, len(phases), **columns)


def _median(amounts: Iterable[float | None]) -> float | None:
    numbers = [amount for amount in amounts if amount is not None]
    return median(numbers) if numbers else None


TRAFFIC = (
    "disk_read_bytes",
    "disk_written_bytes",
    "disk_discarded_bytes",
    "mapping_read_bytes",
    "mapping_written_bytes",
)
