"""Configure the tests of the package, whose entry points must be installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution

import pytest


@pytest.fixture(autouse=True, scope="session")
def is_installed() -> None:
    try:
        distribution("fde-instruments")
    except PackageNotFoundError:
        pytest.skip("fde-instruments is not installed: make venv")
