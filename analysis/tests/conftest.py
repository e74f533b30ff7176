"""Synthetic suites for the tests that only read, each made once for all processes of a test run."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.report.figures import style
from analysis.report.sections import Report
from analysis.stats.results import Results, results
from analysis.tests.faulty_suite import FaultySuite, faulty
from analysis.tests.pages import Parsed, Shared, text_of, write_wide
from controller.cli.app import main
from validation.synthetic.papers import write_papers_suite
from validation.synthetic.suite import Options, Truth, write_suite


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Return a function that makes a folder once, in the first process that asks for its name.

    Returns the folder, which is read only, and what the function returned (it is pickled).
    """
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def make_once(name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
        folder, pickled = root / "shared" / name, root / f"{name}.pickle"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not pickled.exists():
                pickled.write_bytes(pickle.dumps(make(folder)))
        return folder, pickle.loads(pickled.read_bytes())

    return make_once


@pytest.fixture(scope="session")
def whole_suite(shared: Shared) -> tuple[Path, Truth]:
    """Three blocks, four configurations, six workloads, sealed."""
    return shared("whole", write_suite)


@pytest.fixture(scope="session")
def derived(whole_suite: tuple[Path, Truth]) -> Results:
    return results(whole_suite[0])


@pytest.fixture(scope="session")
def report_html(whole_suite: tuple[Path, Truth], shared: Shared) -> str:
    """Return the page of the whole suite, by the command itself."""

    def report(folder: Path) -> None:
        shutil.copytree(whole_suite[0], folder)
        assert main(["report", str(folder)]) == 0
        assert main(["verify", str(folder)]) == 0

    return (shared("report", report)[0] / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def page(report_html: str) -> Parsed:
    return Parsed(report_html)


@pytest.fixture(scope="session")
def wide(shared: Shared) -> Results:
    """Seventeen configurations, two workloads, three blocks."""
    return results(shared("wide", write_wide)[0])


@pytest.fixture(scope="session")
def papers(shared: Shared) -> Results:
    """Return the workloads of all five papers."""
    return results(shared("papers", write_papers_suite)[0])


@pytest.fixture(scope="session")
def papers_page(shared: Shared, papers: Results) -> str:
    """All texts of the page of `papers`."""
    return str(shared("papers-page", lambda _: text_of(Report(papers).page()))[1])


@pytest.fixture(scope="session")
def night(shared: Shared) -> FaultySuite:
    """Return a suite that went through a night of faults."""
    faults: FaultySuite = shared("night", faulty)[1]
    return faults


@pytest.fixture(scope="session")
def small_suite(shared: Shared) -> Path:
    """Two blocks, four configurations, two workloads; copied before anything is done to it."""
    options = Options(blocks=2, interval_ms=100, workloads=("sql", "idle"))
    return shared("small", lambda folder: write_suite(folder, options))[0]


@pytest.fixture
def no_svg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn, and not laid out: for tests of what stands around them."""
    monkeypatch.setattr(style, "svg", lambda _: "<svg/>")
