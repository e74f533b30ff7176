"""Test the contract of every registered energy source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from instrumentation.sources import registry
from instrumentation.sources.counter import ReadFailure, Reading
from instrumentation.sources.registry import SourceError
from instrumentation.tests import gauges
from instrumentation.tests.test_perf import ALL
from instrumentation.tests.test_perf import lay_out as lay_out_perf
from instrumentation.tests.trees import TREES

Opener = Callable[[], Any]


def _powercap(root: Path, _: pytest.MonkeyPatch) -> Opener:
    tree = TREES["one socket"].lay_out(root)
    return lambda: registry.load("powercap").open(tree)


def _perf(root: Path, _: pytest.MonkeyPatch) -> Opener:
    tree = lay_out_perf(root, ALL)
    return lambda: registry.load("perf").open(tree)


def _pyrapl(root: Path, patch: pytest.MonkeyPatch) -> Opener:
    from instrumentation.tests import test_pyrapl

    test_pyrapl.lead(root, patch)
    test_pyrapl.lay_out(root, packages=1, drams=1)
    return lambda: registry.load("pyrapl").open()


def _battery(root: Path, _: pytest.MonkeyPatch) -> Opener:
    gauges.lay_out(root / "BAT0", gauges.BATTERY)
    return lambda: registry.load("battery").open(root)


def _nvme(root: Path, patch: pytest.MonkeyPatch) -> Opener:
    gauges.lay_out_nvme(root, patch, nvme0=1 << 16 | 25_000)
    return lambda: registry.load("nvme").open(root, root)


PLACES = {
    "powercap": _powercap,
    "perf": _perf,
    "pyrapl": _pyrapl,
    "battery": _battery,
    "nvme": _nvme,
}
NAMES = {"battery": {"battery", "battery/gauge"}, "nvme": {"nvme0"}}


def test_every_source_of_the_tree_is_tested() -> None:
    ours = [
        n for n in registry.names() if registry.load(n).__module__.startswith("instrumentation")
    ]
    assert set(PLACES) == set(ours)


@pytest.mark.parametrize("name", registry.names())
def test_opens_reads_and_closes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out = PLACES.get(name)  # a source of another package has what this machine has
    opener = lay_out(tmp_path, monkeypatch) if lay_out else registry.load(name).open
    try:
        source = opener()
    except SourceError as error:
        pytest.skip(f"{name} cannot be opened here: {error}")
    first, last = source.read(), source.read()
    source.close()
    assert source.names
    expected = NAMES.get(name, {"package-0", "dram"})
    assert expected <= set(source.names) or not lay_out
    for readings in (first, last):
        assert set(readings) == set(source.names)
        for reading in readings.values():
            assert isinstance(reading, Reading), reading
            assert isinstance(reading.energy_uj, int)
            assert reading.t_before_ns <= reading.t_after_ns
    for zone in source.names:
        assert first[zone].t_after_ns <= last[zone].t_before_ns
        assert first[zone].energy_uj <= last[zone].energy_uj


@pytest.mark.parametrize("name", PLACES)
def test_a_machine_without_counters_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener = PLACES[name](tmp_path / "filled", monkeypatch)
    for file in (tmp_path / "filled").rglob("*"):
        if file.is_file():
            file.unlink()
    try:
        source = opener()
    except SourceError as error:
        message = [str(error)]
    else:
        readings = source.read()
        message = [r.error for r in readings.values() if isinstance(r, ReadFailure)] or [
            source.error
        ]
        source.close()
    assert all(sentence.strip() and "\n" not in sentence for sentence in message)
