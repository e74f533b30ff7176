"""Where every table and figure of the papers is: complete, and pointing at what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from validation.paper_places import PAGE, page, places

SUITES = Path(__file__).parents[2] / "workloads" / "suites"


def faults(suites: Path) -> Iterator[str]:
    """Places whose suite is no file of `suites`, or whose workload that file does not name."""
    for place in filter(lambda place: place.ours, places()):
        path = suites / f"{place.suite}.yml"
        if not path.is_file():
            yield f"{place.paper}, {place.place}: there is no suite {place.suite}"
        elif not names(path.read_text(encoding="utf-8"), place.workload):
            yield f"{place.paper}, {place.place}: {place.suite} has no workload {place.workload}"


def names(suite: str, workload: str) -> bool:
    """Whether a suite's text names a workload as an entry or as what an entry runs."""
    words = re.split(r"[\s,{}]+", suite)
    return any(
        key in ("name:", "workload:") and value == workload for key, value in pairwise(words)
    )


def test_each_counterpart_names_an_existing_suite_and_workload() -> None:
    assert list(faults(SUITES)) == []


def test_an_unknown_suite_or_workload_is_reported(tmp_path: Path) -> None:
    (tmp_path / "paper.yml").write_text("workloads:\n  - {name: sql}\n", encoding="utf-8")
    messages = list(faults(tmp_path))
    assert "fujimoto, Figure 1: paper has no workload file_io" in messages
    assert "verma, Table II: there is no suite cipher-modes" in messages
    assert not any("workload sql" in message for message in messages)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "docs/papers.md is old: run python -m validation.paper_places"
    )


def test_a_shared_remark_is_printed_once() -> None:
    text = page()
    assert text.count("BestCrypt is closed") == 1
    assert text.count("; (1) |\n") >= 12
