"""`fde measure` where some counters and sensors are no figure: trees of real files."""

from __future__ import annotations

import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from contract import extensions
from contract.measured_command import CommandDocument, Component
from contract.tests.refusal import refuses
from controller.measured_command.options import MeasureOptions, of_strings, of_words
from controller.measured_command.sources import main_component, nothing_found
from controller.measured_command.tests.test_measured_command import measured
from instrumentation.sources.battery import BatterySource
from instrumentation.sources.local import LocalSources
from instrumentation.sources.powercap import PowercapSource
from instrumentation.sources.standing import (
    BELOW_PART,
    CONTRADICTED,
    DID_NOT_MOVE,
    STANDS_STILL,
)
from instrumentation.tests.gauges import BATTERY, lay_out
from instrumentation.tests.trees import TREES

# Shorter than a stretch of which it is told whether a counter stood still: this one may be late.
OPTIONS = MeasureOptions(runs=3, rest_s=0.15, seed=1)
SLEEP = [of_words(["sleep", "0.15"])]
WORK = of_strings(["i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"])
PSYS, PACKAGE, DRAM = (
    f"intel-rapl/{zone}/energy_uj"
    for zone in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:1/intel-rapl:1:0")
)


@contextmanager
def counting_w(root: Path, watts: Mapping[str, float]) -> Iterator[None]:
    """Counters that rise by so many W, each some milliseconds."""
    stop, start_s = threading.Event(), time.monotonic()
    files = {file: os.open(root / file, os.O_RDWR) for file in watts}

    def count() -> None:
        while not stop.wait(0.002):
            passed_s = time.monotonic() - start_s
            for file, power_w in watts.items():
                os.pwrite(files[file], b"%d\n" % (10**9 + int(passed_s * power_w * 1e6)), 0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for descriptor in files.values():
            os.close(descriptor)


@pytest.fixture
def platform_tree(tmp_path: Path) -> Path:
    return TREES["psys first"].lay_out(tmp_path / "powercap")


def opener_of(**openers: Callable[[], object]) -> Callable[[], LocalSources]:
    return lambda: LocalSources.open(openers)


def codes(outcome: CommandDocument, name: str) -> set[str]:
    """Return flags of a component that has no joules in any run."""
    trials = [trial for one in outcome.commands for trial in one.trials]
    assert all(trial.energy_j[name] is None for trial in trials)
    assert all(one.components[name].energy_j is None for one in outcome.commands)
    return {flag for trial in trials for flag in trial.flags[name]}


def test_a_psys_that_stands_still_gives_way_to_the_package(
    platform_tree: Path, tmp_path: Path
) -> None:
    opener = opener_of(powercap=lambda: PowercapSource.open(platform_tree))
    with counting_w(platform_tree, {PACKAGE: 20, DRAM: 2}):
        outcome = measured(SLEEP, OPTIONS, opener, tmp_path)
        assert outcome.component == "cpu+memory"
        assert codes(outcome, "psys") == {STANDS_STILL}
        (note,) = [note for note in outcome.notes if note.sentence.startswith("psys")]
        assert "no count changed over" in note.sentence
        assert (note.code, note.facts) == (STANDS_STILL, {"components": ["psys"]})
        with refuses("component-refused", component="psys"):
            measured(SLEEP, replace(OPTIONS, component="psys"), opener, tmp_path)


def test_a_memory_that_stands_still_leaves_the_package_alone(
    platform_tree: Path, tmp_path: Path
) -> None:
    opener = opener_of(powercap=lambda: PowercapSource.open(platform_tree))
    with counting_w(platform_tree, {PACKAGE: 20}):
        outcome = measured(SLEEP, OPTIONS, opener, tmp_path)
    assert outcome.component == "cpu"
    assert codes(outcome, "dram") == codes(outcome, "cpu+memory") == {STANDS_STILL}
    assert any("holds memory" in note.sentence for note in outcome.notes)


def test_a_psys_below_its_package_is_none(platform_tree: Path, tmp_path: Path) -> None:
    opener = opener_of(powercap=lambda: PowercapSource.open(platform_tree))
    with counting_w(platform_tree, {PSYS: 4, PACKAGE: 20, DRAM: 2}):
        outcome = measured(SLEEP, OPTIONS, opener, tmp_path)
    assert outcome.component == "cpu+memory"
    assert codes(outcome, "psys") == {BELOW_PART}


def test_a_package_below_its_core_is_none(tmp_path: Path) -> None:
    tree = TREES["no dram"].lay_out(tmp_path / "powercap")
    opener = opener_of(powercap=lambda: PowercapSource.open(tree))
    top = "intel-rapl/intel-rapl:0"
    with (
        counting_w(tree, {f"{top}/energy_uj": 20, f"{top}/intel-rapl:0:0/energy_uj": 80}),
        refuses("components-unknown", others="package-0, core"),
    ):
        measured(SLEEP, OPTIONS, opener, tmp_path)


@pytest.mark.parametrize(
    ("no_counter", "no_zone", "sums"),
    [("1", "1:1", set()), ("1:2", "1:1", {"cpu"}), ("1:1", "1:2", {"cpu"})],
)
def test_without_a_socket_there_is_no_sum(
    no_counter: str, no_zone: str, sums: set[str], tmp_path: Path
) -> None:
    tree = TREES["two sockets, each with all its parts"].lay_out(tmp_path / "powercap")
    (next(tree.rglob(f"intel-rapl:{no_counter}")) / "energy_uj").unlink()
    shutil.rmtree(next(tree.rglob(f"intel-rapl:{no_zone}")))
    sources = LocalSources.open({"powercap": lambda: PowercapSource.open(tree)})
    assert {"cpu", "cpu+memory"} & set(sources.source_of) == sums
    assert bool(list(sources.unread())) == ("cpu" not in sums)
    sources.close()


def test_a_living_psys_is_the_figure_and_says_what_it_is(
    platform_tree: Path, tmp_path: Path
) -> None:
    opener = opener_of(powercap=lambda: PowercapSource.open(platform_tree))
    with counting_w(platform_tree, {PSYS: 40, PACKAGE: 20, DRAM: 2}):
        outcome = measured(SLEEP, OPTIONS, opener, tmp_path)
    assert outcome.component == "psys"
    assert any(note.sentence.startswith("psys counts what") for note in outcome.notes)
    assert not any("holds disks" in note.sentence for note in outcome.notes)


def test_where_all_stands_still_nothing_is_measured(platform_tree: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    opener = opener_of(powercap=lambda: PowercapSource.open(platform_tree))
    command = of_strings([f"echo x >> {log}; sleep 0.5"])
    with refuses("no-component"):
        measured(command, OPTIONS, opener, tmp_path)
    assert log.read_text() == "x\n"  # it was ended after one block
    outcome = measured([of_words(["true"])], replace(OPTIONS, runs=1, rest_s=0.0), opener, tmp_path)
    assert codes(outcome, outcome.component) == {DID_NOT_MOVE}


def test_a_gauge_tells_no_run_of_few_steps(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "supply/BAT0", {**BATTERY, "power_now": "0"})
    opener = opener_of(battery=lambda: BatterySource.open(tmp_path / "supply", 0.05))
    now = folder / "energy_now"
    step = of_strings([f"n=$(cat {now}); echo $((n - 10000)) > {now}; sleep 0.1"])
    with refuses("no-component"):
        measured(step, OPTIONS, opener, tmp_path)
    line = f"for k in 1 2 3 4 5 6 7 8 9 10 11 12; do n=$(cat {now}); echo $((n - 1000)) > {now}; "
    many = of_strings([f"{line} sleep 0.1; done"])
    outcome = measured(many, replace(OPTIONS, rest_s=0.0), opener, tmp_path)
    assert outcome.component == "battery/gauge"
    energy = outcome.commands[0].components["battery/gauge"].energy_j
    assert energy is not None and energy.mean == pytest.approx(43.2)


@pytest.mark.parametrize(
    ("power_uw", "contradicted"), [(1_200_000, True), (12_000_000, False), (120_000_000, True)]
)
def test_a_power_in_another_unit_than_its_gauge_is_none(
    power_uw: int, contradicted: bool, tmp_path: Path
) -> None:
    """Firmware that gives a tenth, or ten times, of what is true: the gauge falls by 12 W."""
    folder = lay_out(tmp_path / "BAT0", {**BATTERY, "power_now": str(power_uw)})
    sources = LocalSources.open({"battery": lambda: BatterySource.open(tmp_path, 3600)})
    start_s = time.monotonic()
    sources.read()
    for _ in range(20):
        time.sleep(0.01)
        used_uwh = int((time.monotonic() - start_s) * 12e6 / 3600)
        (folder / "energy_now").write_text(f"{40_000_000 - used_uwh}\n")
        sources.read()
    objections = sources.objections(dict.fromkeys(sources.source_of, ()), 0.0)
    sources.close()
    assert {each.code for each in objections.values()} == (
        {CONTRADICTED} if contradicted else set()
    )


@pytest.mark.parametrize(
    ("names", "component"),
    [
        (["cpu", "package-0", "psys", "psys-1"], "cpu"),
        (["cpu", "package-0", "psys", "battery"], "battery"),
        (["fan", "cpu"], "cpu"),
        (["fan", "core"], None),
    ],
)
def test_what_is_compared_is_chosen_by_what_it_covers(
    names: list[str], component: str | None
) -> None:
    components = {name: Component("x", name, "measured") for name in names}
    if component is not None:
        assert main_component(components, None) == component
        return
    with refuses("components-unknown", others="fan, core"):
        main_component(components, None)
    assert main_component(components, names[0]) == names[0]


def test_an_installed_source_is_compared_where_no_other_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "mine-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[fde.sources]\nmine = mine:Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    components = {
        "screen": Component("mine", "screen", "measured"),
        "fan": Component("hwmon", "fan", "measured"),
    }
    extensions.installed.cache_clear()
    assert main_component(components, None) == "screen"
    components["cpu"] = Component("RAPL", "cpu", "measured")
    assert main_component(components, None) == "cpu"
    monkeypatch.undo()
    extensions.installed.cache_clear()
    with refuses("components-unknown", others="screen, fan"):
        main_component({name: components[name] for name in ("screen", "fan")}, None)


def test_a_channel_that_is_not_the_system_is_no_headline() -> None:
    components = {
        "psu1": Component("meter m", "psu1", "measured"),
        "cpu": Component("RAPL", "cpu", "measured"),
    }
    assert main_component(components, None) == "cpu"
    components["m/system"] = Component("meter m", "system", "measured")
    assert main_component(components, None) == "m/system"


def test_no_driver_is_named_where_none_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    nothing = LocalSources({}, {})
    assert "modprobe" not in str(nothing_found(nothing))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert "modprobe" in str(nothing_found(nothing))
