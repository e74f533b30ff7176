"""For pytest: `--fde-contract=PACKAGE` runs our contract tests over what an installed package adds.

Where the testbed is not installed, `pytest -p validation.contract_plugin` finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import distribution as installed_distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# By the group of entry points, the tests that all of it must pass.
CONTRACTS = {
    "fde.meters": ROOT / "instrumentation/tests/test_meters_contract.py",
    "fde.sources": ROOT / "instrumentation/tests/test_sources_contract.py",
    "fde.storage": ROOT / "agent/tests/test_storage_contract.py",
    "fde.workloads": ROOT / "workloads/tests/test_contract.py",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option --fde-contract."""
    parser.addoption(
        "--fde-contract", metavar="PACKAGE", help="hold what an installed package adds against ours"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Run the contract tests of the package's groups only."""
    if package := config.getoption("--fde-contract"):
        # In place of the tests below this folder.
        config.args = [str(path) for path in _added(package)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the tests of names that the package adds."""
    if not (package := config.getoption("--fde-contract")):
        return
    added = _added(package)
    selected = [item for item in items if added.get(item.path, set()) & _values(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in selected])
    items[:] = selected


def _added(package: str) -> Mapping[Path, set[str]]:
    """Return the names that a package adds, by the tests that hold for them. Raises UsageError."""
    try:
        points = installed_distribution(package).entry_points
    except PackageNotFoundError:
        raise pytest.UsageError(f"There is no package {package} here: install it.") from None
    names: dict[Path, set[str]] = {}
    for point in points:
        if point.group in CONTRACTS:
            names.setdefault(CONTRACTS[point.group], set()).add(point.name)
    if not names:
        raise pytest.UsageError(
            f"{package} adds nothing: it has no entry point in {', '.join(CONTRACTS)}."
        )
    if missing := [path for path in names if not path.exists()]:
        raise pytest.UsageError(f"{missing[0]} is not there: run this with the testbed's sources.")
    return names


def _values(item: pytest.Item) -> set[str]:
    """Return the words that a test was parametrised with; none for those on the lab's guest."""
    if item.get_closest_marker("lab"):
        return set()
    call = getattr(item, "callspec", None)
    return {value for value in (call.params if call else {}).values() if isinstance(value, str)}
