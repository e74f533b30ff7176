"""`fde measure` where some counters and sensors are no figure: trees of real files."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from contract import extensions
from contract.measured_command import Component
from contract.tests.refusal import refuses
from controller.measured_command.options import command_from_words, shell_commands
from controller.measured_command.sources import coverage_notes, main_component, short_notes
from controller.measured_command.tests.benches import (
    DRAM,
    OPTIONS,
    PACKAGE,
    PSYS,
    RESTED,
    measured,
    metered,
    without_joules,
)
from instrumentation.sources.battery import BatterySource
from instrumentation.sources.counter import Reading
from instrumentation.sources.local import LocalSources
from instrumentation.sources.powercap import PowercapSource
from instrumentation.sources.standing import (
    BELOW_PART,
    CONTRADICTED,
    DID_NOT_MOVE,
    STANDS_STILL,
    Objection,
)
from instrumentation.tests.gauges import BATTERY, lay_out
from instrumentation.tests.trees import TREES


@pytest.mark.parametrize(
    ("watts", "component", "silent", "sentence"),
    [
        ({PACKAGE: 20, DRAM: 2}, "cpu+memory", {"psys": STANDS_STILL}, "no count changed over"),
        (
            {PACKAGE: 20},
            "cpu",
            dict.fromkeys(("psys", "dram", "cpu+memory"), STANDS_STILL),
            "holds memory",
        ),
        ({PSYS: 4, PACKAGE: 20, DRAM: 2}, "cpu+memory", {"psys": BELOW_PART}, "psys"),
        ({PSYS: 40, PACKAGE: 20, DRAM: 2}, "psys", {}, "psys counts what"),
    ],
)
def test_an_invalid_counter_is_replaced_by_the_next_component(
    watts: Mapping[str, float],
    component: str,
    silent: Mapping[str, str],
    sentence: str,
    tmp_path: Path,
) -> None:
    outcome = metered(tmp_path, watts)
    assert outcome.component == component
    assert without_joules(outcome) == {name: {code} for name, code in silent.items()}
    sentences = " ".join(note.sentence for note in outcome.notes)
    holds_no_disk = re.search("holds (memory, )?disks", sentences)
    assert sentence in sentences and bool(holds_no_disk) == (component != "psys")
    notes = [note for note in outcome.notes if note.code in silent.values()]
    assert {name: note.code for note in notes for name in note.facts["components"]} == silent


def test_a_refused_component_is_not_compared(tmp_path: Path) -> None:
    with refuses("component-refused", component="psys"):
        metered(tmp_path, {PACKAGE: 20, DRAM: 2}, component="psys")


def test_a_package_below_its_core_is_refused(tmp_path: Path) -> None:
    top = "intel-rapl/intel-rapl:0"
    watts = {f"{top}/energy_uj": 20, f"{top}/intel-rapl:0:0/energy_uj": 80}
    with refuses("components-unknown", others="core"):
        metered(tmp_path, watts, tree="no dram")


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


def test_constant_counters_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with refuses("no-component") as refused:
        metered(tmp_path, {}, shell_commands([f"echo x >> {log}; sleep 0.5"]))
    assert not hasattr(refused.value, "__notes__")  # that a result was shown, after which none is
    assert log.read_text() == "x\n"  # it was ended after one block
    outcome = metered(tmp_path, {}, [command_from_words(["true"])], runs=1, rest_s=0.0)
    assert without_joules(outcome)[outcome.component] == {DID_NOT_MOVE}


def test_a_gauge_with_few_steps_gives_no_joules(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "supply/BAT0", {**BATTERY, "power_now": "0"})
    sources = {"battery": lambda: BatterySource.open(tmp_path / "supply", 0.05)}
    energy_file = folder / "energy_now"
    step = shell_commands(
        [f"n=$(cat {energy_file}); echo $((n - 10000)) > {energy_file}; sleep 0.1"]
    )
    with refuses("no-component"):
        measured(step, RESTED, lambda: LocalSources.open(sources), tmp_path)
    drain = f"n=$(cat {energy_file}); echo $((n - 1000)) > {energy_file}"
    line = f"for k in 1 2 3 4 5 6 7 8 9 10 11 12; do {drain};"
    many = shell_commands([f"{line} sleep 0.1; done"])
    outcome = measured(many, OPTIONS, lambda: LocalSources.open(sources), tmp_path)
    assert outcome.component == "battery/gauge"
    energy = outcome.commands[0].components["battery/gauge"].energy_j
    assert energy is not None and energy.mean == pytest.approx(43.2)


@pytest.mark.parametrize(
    ("power_uw", "varies", "contradicted"),
    [
        (1_200_000, False, True),
        (7_000_000, False, True),  # left from before a sleep
        (7_000_000, True, False),  # late after the load
        (10_500_000, False, False),
        (12_000_000, False, False),
        (120_000_000, True, True),
    ],
)
def test_a_power_inconsistent_with_its_gauge_is_refused(
    power_uw: int, varies: bool, contradicted: bool, tmp_path: Path
) -> None:
    """The gauge falls by 12 W; a power that stands still may differ from it by less."""
    folder = lay_out(tmp_path / "BAT0", {**BATTERY, "power_now": str(power_uw)})
    sources = LocalSources.open({"battery": lambda: BatterySource.open(tmp_path, 3600)})
    start_s = time.monotonic()
    sources.read()
    for n in range(40):
        time.sleep(0.01)
        (folder / "power_now").write_text(f"{power_uw + n * varies}\n")
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
        (["cpu", "package-0", "gpu-0", "system"], "system"),
        (["cpu", "package-0", "psys", "battery"], "battery"),
        (["cpu", "package-0", "psys"], "psys"),
        (["cpu", "package-0", "psys", "psys-1"], "cpu"),
        (["fan", "cpu"], "cpu"),
        (["gpu-0"], "gpu-0"),
        (["psu1", "cpu"], "cpu"),
        (["psu1", "cpu", "m/system"], "m/system"),
        (["fan", "core"], None),
    ],
)
def test_the_component_with_most_coverage_is_compared(
    names: Sequence[str], component: str | None
) -> None:
    meters = {"system", "psu1", "m/system"}
    components = {n: Component("meter m" if n in meters else "x", n, "measured") for n in names}
    if component is None:
        with refuses("components-unknown", others=", ".join(names)):
            main_component(components, None)
    else:
        assert main_component(components, None) == component
    assert main_component(components, names[0]) == names[0]


@pytest.mark.parametrize(
    ("sources", "component"),
    [
        ({"system": "meter a", "b/system": "meter b"}, None),  # one at each of two supplies
        ({"system": "meter a", "b/system": "meter b", "cpu": "RAPL"}, None),
        ({"system": "meter a", "psu1": "meter b"}, "system"),
        ({"system": "meter a", "battery": "battery"}, "system"),
        ({"battery": "battery", "battery/gauge": "battery"}, "battery"),
    ],
)
def test_of_equal_components_that_may_be_parts_none_is_compared(
    sources: Mapping[str, str], component: str | None
) -> None:
    components = {name: Component(source, name, "measured") for name, source in sources.items()}
    if component is None:
        with refuses("components-equal", components="system, b/system"):
            main_component(components, None)
        assert main_component(components, "b/system") == "b/system"
    else:
        assert main_component(components, None) == component


@pytest.mark.parametrize(
    ("sources", "codes"),
    [
        ({"system": "meter m"}, {"unconfirmed"}),
        ({"system": "meter m", "psu2": "meter m"}, {"unconfirmed"}),
        ({"system": "meter m", "cpu": "RAPL"}, set()),
        ({"fan": "hwmon", "cpu": "RAPL"}, {"unconfirmed"}),
        ({"cpu": "RAPL"}, {"not-counted"}),
    ],
)
def test_a_total_that_no_other_source_confirms_is_named(
    sources: Mapping[str, str], codes: set[str]
) -> None:
    components = {name: Component(source, name, "measured") for name, source in sources.items()}
    notes = coverage_notes(next(iter(sources)), components, {}, None)
    assert {note.code for note in notes} == codes
    cpu = Objection("stands-still", "cpu", "it stands still")
    if "system" in sources:
        notes = coverage_notes("system", components, {"cpu": cpu}, None)
        assert {note.code for note in notes} == {"unconfirmed"}


@pytest.mark.parametrize(
    ("shortest_s", "held_s", "is_short"),
    [(4.0, 1.0, True), (6.0, 1.0, False), (6.0, 10.0, True), (0.1, None, False)],
)
def test_a_run_shorter_than_a_power_lasts_is_named(
    shortest_s: float, held_s: float | None, is_short: bool
) -> None:
    components = {"power_meter/power1": Component("hwmon", "power1", "measured")}
    notes = list(short_notes("power_meter/power1", components, shortest_s, held_s))
    assert [note.code for note in notes] == ["short-runs"] * is_short
    assert all(f"for {max(5, held_s or 0):g} s" in note.sentence for note in notes)


def test_the_reasons_of_sources_that_were_not_read_are_given() -> None:
    components = {"psys": Component("RAPL", "psys", "measured")}
    objections = {"psys": Objection("stands-still", "psys", "it stands still")}
    with refuses("no-component") as refused:
        main_component(components, None, objections, ["Not read: the battery."])
    assert "Not read: the battery." in str(refused.value)


def test_a_counter_that_was_away_gives_no_joules_when_it_is_back() -> None:
    class Card:
        names = ("card",)
        counts = iter([50, 60, 0, 1, 80, 90, 100])

        def read(self) -> dict[str, Reading]:
            now_ns = time.monotonic_ns()
            return {"card": Reading(now_ns, now_ns + 1000, next(self.counts) * 10**6)}

        def close(self) -> None:
            pass

    sources = LocalSources.open({"x": Card})
    series = [sources.read() for _ in range(7)]
    joules = [sources.between(pair)["card"].energy_j for pair in pairwise(series)]
    assert joules == [10, None, 1, None, 10, 10]


def test_a_plugin_source_is_compared_without_another(
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
    keyboard = {"keyboard": Component("mine", "keyboard", "measured")}
    with refuses("components-equal", components="screen, keyboard"):
        main_component(components | keyboard, None)
    components["cpu"] = Component("RAPL", "cpu", "measured")
    assert main_component(components, None) == "cpu"
    monkeypatch.undo()
    extensions.installed.cache_clear()
    with refuses("components-unknown", others="screen, fan"):
        main_component({name: components[name] for name in ("screen", "fan")}, None)
