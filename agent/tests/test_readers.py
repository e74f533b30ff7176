"""The other readers beside our own, over a run: real files and the running kernel's events."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from agent import readers
from agent.tests.check_context import not_none
from contract.system_text import read_number
from instrumentation.clock import monotonic_ns
from instrumentation.sources.counter import LONE_FLAG, Reading, Readings
from instrumentation.sources.perf import PerfSource
from instrumentation.sources.polled import PolledSource
from instrumentation.sources.powercap import PowercapSource
from instrumentation.tests.test_perf import ALL
from instrumentation.tests.test_perf import lay_out as lay_out_perf
from instrumentation.tests.test_pyrapl import lay_out as lay_out_pyrapl
from instrumentation.tests.test_pyrapl import lead, set_uj


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a machine without perf_event.

    Its powercap tree is read by pyRAPL and by ourselves.
    """
    lay_out_pyrapl(tmp_path, packages=1, drams=1)
    lead(tmp_path, monkeypatch)
    monkeypatch.setattr(PerfSource, "is_present", lambda: False)
    return tmp_path


def open_powercap(root: Path) -> PowercapSource:
    return PowercapSource.open(root / "sys/class/powercap")


def test_pyrapl_is_read_next_to_our_counters(root: Path) -> None:
    with open_powercap(root) as source:
        others = readers.OtherReaders(source)
        others.begin()
        set_uj(root, "intel-rapl:0", 1250)
        (pyrapl,) = others.end().values()
    package, dram = not_none(pyrapl.zones)
    assert (package.zone, package.energy_uj, dram.energy_uj) == ("package-0", 250, 0)
    assert not_none(package.own_end).energy_uj - not_none(package.own_start).energy_uj == 250
    # Both edges together, each from one reader's first stamp to the other's last.
    assert not_none(pyrapl.t_start_ns) < not_none(pyrapl.t_end_ns)
    least_ns = not_none(pyrapl.t_start_ns) - not_none(package.own_start).t_before_ns
    least_ns += not_none(package.own_end).t_after_ns - not_none(pyrapl.t_end_ns)
    whole_ns = not_none(package.own_end).t_after_ns - not_none(package.own_start).t_before_ns
    assert least_ns <= not_none(package.apart_ns) <= whole_ns


def test_a_failure_of_pyrapl_is_recorded_and_the_next_run_works(root: Path) -> None:
    with open_powercap(root) as source:
        others = readers.OtherReaders(source)
        others.begin()
        set_uj(root, "intel-rapl:0", 3)
        set_uj(root, "intel-rapl:0/intel-rapl:0:0", 2)
        assert others.end()["pyrapl"].zones is None
        others.begin()
        assert not_none(others.end()["pyrapl"].zones)[0].energy_uj == 0


def test_perf_is_read_if_the_kernel_has_it(root: Path) -> None:
    perf_root = lay_out_perf(root / "perf", {name: ALL[name] for name in ("energy-pkg",)})
    with open_powercap(root) as source:
        others = readers.OtherReaders(source, {"perf": lambda: PerfSource.open(perf_root)})
        others.begin()
        perf = others.end()["perf"]
    if perf.error:
        pytest.skip(f"perf_event_open is not permitted here: {perf.error}")
    (zone,) = not_none(perf.zones)
    assert zone.zone == "package-0"
    assert isinstance(zone.energy_uj, int)
    assert not_none(perf.t_start_ns) >= not_none(zone.own_start).t_after_ns
    assert not_none(perf.t_end_ns) <= not_none(zone.own_end).t_before_ns


def test_perf_that_cannot_be_opened_is_an_error_text(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PerfSource, "is_present", lambda: True)
    monkeypatch.setattr(PerfSource, "open", partial(PerfSource.open, root / "sys"))
    with open_powercap(root) as source:
        others = readers.OtherReaders(source)
        others.begin()
        perf = others.end()["perf"]
    assert "`sudo modprobe rapl`" in not_none(perf.error)


def test_a_counter_that_vanished_is_not_compared(root: Path) -> None:
    with open_powercap(root) as source:
        others = readers.OtherReaders(source)
        others.begin()
        (root / "sys/class/powercap/intel-rapl/intel-rapl:0/energy_uj").write_text("")
        source.read()
        set_uj(root, "intel-rapl:0", 1250)
        package, dram = not_none(others.end()["pyrapl"].zones)
    assert package.own_end is None
    assert dram.own_end is not None


class Shunt:
    """A source as another package may have it; it reads a file."""

    names = ("package-0", "screen")

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> Readings:
        energy_uj = int(self._file.read_text())
        return {name: Reading(monotonic_ns(), monotonic_ns(), energy_uj) for name in self.names}

    def close(self) -> None: ...


def test_a_source_of_another_package_is_read_too(root: Path) -> None:
    shunt = root / "shunt"
    shunt.write_text("7000")
    with open_powercap(root) as source:
        others = readers.OtherReaders(
            source, {**readers.registered(), "shunt": lambda: Shunt(shunt)}
        )
        others.begin()
        shunt.write_text("7300")
        documents = others.end()
        assert list(documents) == ["pyrapl", "shunt"]
        package, screen = not_none(documents["shunt"].zones)
        assert (package.energy_uj, screen.energy_uj) == (300, 300)
        assert not_none(package.own_start).t_after_ns <= not_none(documents["shunt"].t_start_ns)
        assert not_none(documents["shunt"].t_end_ns) <= not_none(package.own_end).t_before_ns
        assert (screen.own_start, screen.apart_ns) == (None, None)
        # Whatever it raises is told, spoils no run and none of the others.
        others.begin()
        shunt.write_text("empty")
        documents = others.end()
        assert "invalid literal" in not_none(documents["shunt"].error)
        assert documents["pyrapl"].zones
        shunt.write_text("7300")
        others.begin()
        assert not_none(others.end()["shunt"].zones)[0].energy_uj == 0


def test_a_polled_power_records_its_gaps(root: Path, tmp_path: Path) -> None:
    shown, gone = tmp_path / "power_uw", tmp_path / "gone"
    shown.write_text("30000000\n")
    powers = {"board": lambda: read_number(shown)}
    with open_powercap(root) as source:
        opener = {"sensor": lambda: PolledSource(powers, {}, 3600.0, ("board",))}
        others = readers.OtherReaders(source, opener)
        others.begin()
        (sound,) = not_none(others.end()["sensor"].zones)
        others.begin()
        shown.rename(gone)
        others._readers[0]._source.read()  # type: ignore[union-attr]
        gone.rename(shown)
        (cut,) = not_none(others.end()["sensor"].zones)
        others.begin()
        (after,) = not_none(others.end()["sensor"].zones)
        others.begin()
        for power_uw in ("5000000000", "30000000"):
            shown.write_text(power_uw)
            others._readers[0]._source.read()  # type: ignore[union-attr]
        (lone,) = not_none(others.end()["sensor"].zones)
        others._readers[0]._source.close()  # type: ignore[union-attr]
    assert (sound.zone, sound.own_end, sound.gaps) == ("board", None, ())
    assert not_none(sound.energy_uj) > 0
    assert cut.energy_uj is None
    assert [gap.error for gap in not_none(cut.gaps)] == ["No such file or directory"]
    assert (not_none(after.energy_uj) >= 0, after.gaps) == (True, ())
    assert (lone.energy_uj, [gap.error for gap in not_none(lone.gaps)]) == (None, [LONE_FLAG])
