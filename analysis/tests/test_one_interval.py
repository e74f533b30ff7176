"""One figure has one interval on the page, and it agrees with the mark next to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.report import tables, words
from analysis.report.view import Matrix
from analysis.stats.comparison import Comparison
from analysis.stats.family import Family
from analysis.stats.results import Results
from validation.inference import reach


def agrees(c: Comparison) -> bool:
    """Return whether a word follows from the interval."""
    if c.low is None or c.high is None:
        return c.verdict in ("inconclusive", "incomplete")
    within = 1 / (1 + c.margin) < c.low and c.high < 1 + c.margin
    excludes = not c.low <= 1 <= c.high
    return {
        "differs": excludes and not within,
        "equivalent": within,
        "inconclusive": not excludes and not (within and c.n >= 6),
        "incomplete": True,
    }[c.verdict]


def members(family: Family) -> list[Comparison]:
    return [*filter(None, (c.comparison for c in family.contrasts)), *family.versus.values()]


@pytest.mark.parametrize("blocks", [3, 6, 10])
def test_no_mark_contradicts_its_interval(blocks: int) -> None:
    for seed in range(30):
        generator = np.random.default_rng(seed)
        logs = generator.normal(0, 0.02, (5, blocks, 4)) + generator.normal(0, 0.03, (5, 1, 4))
        logs += generator.normal(0, 0.01, (1, blocks, 1))
        logs[generator.random(logs.shape) < 0.01] += 0.3
        assert all(map(agrees, members(reach.judge_logs(logs))))


def test_a_figure_has_the_same_interval_in_every_table(derived: Results) -> None:
    """The ratio of a workload: in the family and in the summary."""
    family = derived.family
    for row in derived.summary_rows:
        c = family.versus.get((row.workload, row.configuration, row.source, row.component))
        if c is not None:
            assert (row.ratio_low, row.ratio_high, row.level) == (c.low, c.high, c.level)
    for key, c in family.versus.items():
        again = replace(c, level=0.05, systematic=0.0)
        assert family.shown(again, *key[:2]) == c or key[3] != family.component


def test_every_change_in_the_matrix_is_one_of_the_family(derived: Results) -> None:
    changes = {words.change_in(c) for c in members(derived.family)}
    (matrix,) = (block for block in tables.matrix(derived) if isinstance(block, Matrix))
    cells = [cell for group in matrix.groups for _, row in group.rows for cell in row]
    assert {cell.hint.partition("], ")[0] + "]" for cell in cells if "[" in cell.hint} <= changes
