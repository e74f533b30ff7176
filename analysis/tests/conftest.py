"""One synthetic suite for all tests that only read."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation.synthetic.suite import Truth, write_suite


@pytest.fixture(scope="session")
def whole_suite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """Three blocks, four configurations, six workloads, sealed; read only."""
    folder = tmp_path_factory.mktemp("suites") / "whole"
    return folder, write_suite(folder)
