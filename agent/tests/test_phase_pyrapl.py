"""Phases by the real pyRAPL over real files, beside our own reader of the same counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.marks import Marks
from agent.phase_pyrapl import PhasePyrapl
from agent.sampler import Sampler
from agent.tests.check_context import not_none
from contract.documents import Counter
from instrumentation.sources.powercap import PowercapSource
from instrumentation.tests.test_pyrapl import lay_out, lead, set_uj

RANGE_UJ = 262_143_328_850
PACKAGE, DRAM = "intel-rapl:0", "intel-rapl:0/intel-rapl:0:0"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One package with its memory, read by pyRAPL and by ourselves."""
    lay_out(tmp_path, packages=1, drams=1)
    for zone in (tmp_path / "sys/class/powercap/intel-rapl").rglob("energy_uj"):
        zone.with_name("max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    lead(tmp_path, monkeypatch)
    return tmp_path


def phases(root: Path, *steps: dict[str, int]) -> list[tuple[Counter, ...]]:
    """PyRAPL's counters of one phase after the other, in each of which counters are set."""
    with PowercapSource.open(root / "sys/class/powercap") as source:
        marks = Marks(source, Sampler(source, 0), pyrapl=PhasePyrapl())
        for number, step in enumerate(steps):
            with marks.phase(f"{number}"):
                for zone, energy_uj in step.items():
                    set_uj(root, zone, energy_uj)
        documents = marks.phases()
    for phase in documents:
        assert [c.zone for c in phase.counters] == ["package-0", "dram"] * 2
        assert [c.source for c in phase.counters] == ["rapl"] * 2 + ["pyrapl"] * 2
    return [phase.counters[2:] for phase in documents]


def test_each_phase_is_measured_separately(root: Path) -> None:
    first, second = phases(root, {PACKAGE: 1250}, {PACKAGE: 1300, DRAM: 507})
    assert [not_none(c.end).energy_uj for c in first] == [250, 0]
    assert [not_none(c.end).energy_uj for c in second] == [50, 7]
    for counter in first + second:
        assert (not_none(counter.start).energy_uj, counter.flags) == (0, ())
        assert not_none(counter.start).t_after_ns <= not_none(counter.end).t_before_ns


def test_a_wrapped_counter_has_no_figure_in_its_phase_only(root: Path) -> None:
    set_uj(root, PACKAGE, RANGE_UJ - 1000)
    (package, dram), (after, _) = phases(root, {PACKAGE: 500, DRAM: 507}, {PACKAGE: 900})
    assert (package.start, package.end) == (None, None)
    assert package.flags == ("pyrapl-wrapped", "read-failed")
    assert (not_none(dram.end).energy_uj, dram.flags) == (7, ())
    assert (not_none(after.end).energy_uj, after.flags) == (400, ())


def test_a_counter_that_wrapped_and_rose_again_has_no_figure(root: Path) -> None:
    """PyRAPL sees a rise and knows nothing of the rounds: our samples do."""
    with PowercapSource.open(root / "sys/class/powercap") as source:
        sampler = Sampler(source, 200)
        marks = Marks(source, sampler, pyrapl=PhasePyrapl())
        with sampler:
            set_uj(root, PACKAGE, RANGE_UJ - 10)
            sampled = len(sampler._due_ns)
            with marks.phase("work"):
                _await_samples(sampler, sampled)
                set_uj(root, PACKAGE, 20)
                _await_samples(sampler, len(sampler._due_ns))
                set_uj(root, PACKAGE, RANGE_UJ - 1)
        package = marks.phases()[0].counters[2]
    assert (package.end, package.flags) == (None, ("pyrapl-wrapped",))


def _await_samples(sampler: Sampler, before: int) -> None:
    while len(sampler._due_ns) < before + 3:
        pass


def test_a_wrong_unit_is_flagged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if pyRAPL gave the joules that its documentation promises."""
    from pyRAPL.device_api import DeviceAPI

    true = DeviceAPI.energy
    monkeypatch.setattr(DeviceAPI, "energy", lambda self: tuple(e / 1e6 for e in true(self)))
    (package, dram), *_ = phases(root, {PACKAGE: 50_000_000})
    assert (not_none(package.end).energy_uj, package.flags) == (50, ("pyrapl-differs",))
    assert dram.flags == ()


def test_a_layout_unknown_to_pyrapl_is_a_failed_read(root: Path) -> None:
    name = root / "sys/class/powercap/intel-rapl" / PACKAGE / "name"
    counters = name.read_text()
    (root / "sys/devices/system/cpu/present").unlink()
    assert counters == "package-0\n"
    (package, dram), *_ = phases(root, {PACKAGE: 1250})
    assert package.flags == dram.flags == ("read-failed",)
    assert package.end is None
