"""Ten rows of the claims, made again from runs and printed numbers by code of this file alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy import stats

from analysis.published.tables import claim_table
from analysis.stats.results import Results, results
from analysis.tests.pages import Shared
from validation.synthetic.paper import write_paper_suite


@pytest.fixture(scope="module")
def paper(shared: Shared) -> Results:
    return results(shared("paper", write_paper_suite)[0])


@pytest.fixture(scope="module")
def table(paper: Results) -> pl.DataFrame:
    return claim_table(paper)


@dataclass(frozen=True)
class Row:
    """A ratio as the paper prints it, and where the claim puts it."""

    claim: str
    column: str
    workload: str
    phase: str
    configuration: str
    against: str
    printed: float | None
    low: float
    high: float


INF = float("inf")
A128, A256 = "dmcrypt-aes128", "dmcrypt-aes256"
LONGER_READ, LONGER_WRITE = "Reading 10 MB takes much longer", "Writing 1 GB takes much longer"
WRITE = "write-large"
ROWS = [
    Row(LONGER_READ, "duration_s", "file_io", "read-small", A128, "plain", 0.445 / 0.151, 1, INF),
    Row(LONGER_READ, "duration_s", "file_io", "read-small", A256, "plain", 0.564 / 0.151, 1, INF),
    Row(LONGER_WRITE, "duration_s", "file_io", WRITE, A256, "opal", 72.425 / 35.599, 1, INF),
    Row("Unpacking takes hardly", "energy_j", "kernel_tree", "untar", "opal", "plain",
        2455.955 / 2414.687, 0, 1.05),
    Row("Unpacking takes longer", "duration_s", "kernel_tree", "untar", A128, "plain",
        100.279 / 80.464, 1, INF),
    Row("Unpacking takes more energy", "energy_j", "kernel_tree", "untar", A256, "plain",
        3229.965 / 2414.687, 1, INF),
    Row("The whole kernel test takes only", "energy_j", "kernel_tree", "all", "opal", "plain",
        15 / 14, 0, 1.05),
    Row("Grep takes longer", "duration_s", "kernel_grep", "grep-1", A128, "plain",
        7.59 / 5.175, 1, INF),
    Row("SQL queries take the same", "energy_j", "sql", "query", A256, "opal", None,
        1 / 1.05, 1.05),
    Row("Video takes nearly the same", "energy_j", "video", "play", A256, A128, None,
        1 / 1.05, 1.05),
]  # fmt: skip


def by_block(paper: Results, row: Row, configuration: str) -> npt.NDArray[np.float64]:
    """Return the figure of each block, in their order."""
    runs = paper.energy.filter(
        component="system", workload=row.workload, phase=row.phase, configuration=configuration
    )
    return runs.sort("block")[row.column].to_numpy()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.claim}, {row.column}")
def test_a_row_of_the_claims_follows_from_runs_and_printed_numbers(
    row: Row, paper: Results, table: pl.DataFrame
) -> None:
    quantity = {"duration_s": "time", "energy_j": "energy"}[row.column]
    (shown,) = table.filter(
        pl.col("claim").str.starts_with(row.claim),
        quantity=quantity,
        configuration=row.configuration,
        against=row.against,
    ).iter_rows(named=True)
    logs = np.log(by_block(paper, row, row.configuration) / by_block(paper, row, row.against))
    assert shown["n"] == len(logs) == 20
    assert shown["ratio"] == pytest.approx(float(np.exp(logs.mean())), rel=1e-9)
    assert shown["published"] == (None if row.printed is None else pytest.approx(row.printed))
    low, high = np.exp(stats.t.interval(0.95, 19, logs.mean(), stats.sem(logs)))
    assert shown["ratio_low"] <= low and high <= shown["ratio_high"]  # of a family, with the meter
    within = row.low < shown["ratio_low"] and shown["ratio_high"] < row.high
    assert (shown["ratio_verdict"] == "agrees with the model") == within
    assert within, "every one of these is supported by figures that were drawn from the paper"
