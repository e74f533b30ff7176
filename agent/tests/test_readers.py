"""The other readers beside our own, over a run: real files and the running kernel's events."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import readers
from agent.tests.check_context import known
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


def own(root: Path) -> PowercapSource:
    return PowercapSource.open(root / "sys/class/powercap")


def test_pyrapl_and_our_own_side_by_side(root: Path) -> None:
    with own(root) as source:
        others = readers.OtherReaders(source)
        others.begin()
        set_uj(root, "intel-rapl:0", 1250)
        (pyrapl,) = others.end().values()
    package, dram = known(pyrapl.zones)
    assert (package.zone, package.energy_uj, dram.energy_uj) == ("package-0", 250, 0)
    assert known(package.own_end).energy_uj - known(package.own_start).energy_uj == 250
    # Both edges together, each from one reader's first stamp to the other's last.
    assert known(pyrapl.t_start_ns) < known(pyrapl.t_end_ns)
    least_ns = known(pyrapl.t_start_ns) - known(package.own_start).t_before_ns
    least_ns += known(package.own_end).t_after_ns - known(pyrapl.t_end_ns)
    whole_ns = known(package.own_end).t_after_ns - known(package.own_start).t_before_ns
    assert least_ns <= known(package.apart_ns) <= whole_ns


def test_a_failure_of_pyrapl_is_told_and_the_next_run_begins_afresh(root: Path) -> None:
    with own(root) as source:
        others = readers.OtherReaders(source)
        others.begin()
        set_uj(root, "intel-rapl:0", 3)
        set_uj(root, "intel-rapl:0/intel-rapl:0:0", 2)
        assert others.end()["pyrapl"].zones is None
        others.begin()
        assert known(others.end()["pyrapl"].zones)[0].energy_uj == 0


def test_perf_where_the_kernel_has_it(root: Path) -> None:
    perf_root = lay_out_perf(root / "perf", {name: ALL[name] for name in ("energy-pkg",)})
    with own(root) as source:
        others = readers.OtherReaders(source, {"perf": lambda: PerfSource.open(perf_root)})
        others.begin()
        perf = others.end()["perf"]
    if perf.error:
        pytest.skip(f"perf_event_open is not permitted here: {perf.error}")
    (zone,) = known(perf.zones)
    assert zone.zone == "package-0"
    assert isinstance(zone.energy_uj, int)
    assert known(perf.t_start_ns) >= known(zone.own_start).t_after_ns
    assert known(perf.t_end_ns) <= known(zone.own_end).t_before_ns


def test_perf_that_cannot_be_opened_is_a_sentence(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PerfSource, "is_present", lambda: True)
    with own(root) as source:
        others = readers.OtherReaders(source)
        others.begin()
        perf = others.end()["perf"]
    assert "`sudo modprobe rapl`" in known(perf.error)


def test_a_counter_that_was_gone_is_not_compared(root: Path) -> None:
    with own(root) as source:
        others = readers.OtherReaders(source)
        others.begin()
        (root / "sys/class/powercap/intel-rapl/intel-rapl:0/energy_uj").write_text("")
        source.read()
        set_uj(root, "intel-rapl:0", 1250)
        package, dram = known(others.end()["pyrapl"].zones)
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


def test_a_source_of_another_package_is_read_as_well(root: Path) -> None:
    shunt = root / "shunt"
    shunt.write_text("7000")
    with own(root) as source:
        others = readers.OtherReaders(
            source, {**readers.registered(), "shunt": lambda: Shunt(shunt)}
        )
        others.begin()
        shunt.write_text("7300")
        documents = others.end()
        assert list(documents) == ["pyrapl", "shunt"]
        package, screen = known(documents["shunt"].zones)
        assert (package.energy_uj, screen.energy_uj) == (300, 300)
        assert known(package.own_start).t_after_ns <= known(documents["shunt"].t_start_ns)
        assert known(documents["shunt"].t_end_ns) <= known(package.own_end).t_before_ns
        assert (screen.own_start, screen.apart_ns) == (None, None)
        # Whatever it raises is told, spoils no run and none of the others.
        others.begin()
        shunt.write_text("empty")
        documents = others.end()
        assert "invalid literal" in known(documents["shunt"].error)
        assert documents["pyrapl"].zones
        shunt.write_text("7300")
        others.begin()
        assert known(others.end()["shunt"].zones)[0].energy_uj == 0


def test_a_polled_power_tells_its_gaps(root: Path, tmp_path: Path) -> None:
    shown, gone = tmp_path / "power_uw", tmp_path / "gone"
    shown.write_text("30000000\n")
    powers = {"board": lambda: read_number(shown)}
    with own(root) as source:
        opener = {"sensor": lambda: PolledSource(powers, {}, 3600.0, ("board",))}
        others = readers.OtherReaders(source, opener)
        others.begin()
        (sound,) = known(others.end()["sensor"].zones)
        others.begin()
        shown.rename(gone)
        others._readers[0]._source.read()  # type: ignore[union-attr]
        gone.rename(shown)
        (cut,) = known(others.end()["sensor"].zones)
        others.begin()
        (after,) = known(others.end()["sensor"].zones)
        others.begin()
        for power_uw in ("5000000000", "30000000"):
            shown.write_text(power_uw)
            others._readers[0]._source.read()  # type: ignore[union-attr]
        (lone,) = known(others.end()["sensor"].zones)
        others._readers[0]._source.close()  # type: ignore[union-attr]
    assert (sound.zone, sound.own_end, sound.gaps) == ("board", None, ())
    assert known(sound.energy_uj) > 0
    assert cut.energy_uj is None
    assert [gap.error for gap in known(cut.gaps)] == ["No such file or directory"]
    assert (known(after.energy_uj) >= 0, after.gaps) == (True, ())
    assert (lone.energy_uj, [gap.error for gap in known(lone.gaps)]) == (None, [LONE_FLAG])
