"""Test perf_event with descriptions of a software event of the running kernel."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path

import pytest

from contract.tests.refusal import refuses
from instrumentation.sources import perf
from instrumentation.sources.counter import ReadFailure, Reading, difference
from instrumentation.sources.perf import Event, PerfError, PerfSource
from instrumentation.tests.trees import as_nobody

SOFTWARE, CPU_CLOCK = 1, 0  # linux/perf_event.h: counts nanoseconds of one processor
EXACT_SCALE = "2.3283064365386962890625e-10"  # 2^-32, as the kernel writes it


def lay_out(
    root: Path,
    events: dict[str, tuple[str, str]],
    cpus: str = "0",
    topology: dict[int, tuple[int, int]] | None = None,
    kind: int = SOFTWARE,
) -> Path:
    """Lay out `events` (scale and unit by name) and `topology` (package and die by processor)."""
    unit = root / "bus/event_source/devices/power"
    (unit / "events").mkdir(parents=True)
    (unit / "type").write_text(f"{kind}\n")
    (unit / "cpumask").write_text(cpus + "\n")
    for name, (scale, joules) in events.items():
        (unit / "events" / name).write_text(f"event=0x{CPU_CLOCK:02x}\n")
        (unit / "events" / f"{name}.scale").write_text(scale + "\n")
        (unit / "events" / f"{name}.unit").write_text(joules + "\n")
    for cpu, (package, die) in (topology or {0: (0, 0)}).items():
        folder = root / f"devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "die_id").write_text(f"{die}\n")
    return root


def opened(root: Path) -> PerfSource:
    """Open the source; skip the test if this kernel does not permit it."""
    try:
        return PerfSource.open(root)
    except PerfError as error:
        pytest.skip(f"perf_event_open is not permitted here: {error}")


ALL = {
    "energy-pkg": ("1e-9", "Joules"),
    "energy-cores": ("1e-9", "Joules"),
    "energy-gpu": ("1e-9", "Joules"),
    "energy-ram": ("1e-9", "Joules"),
    "energy-psys": ("1e-9", "Joules"),
}


def test_counts_of_the_kernel_between_two_stamps(tmp_path: Path) -> None:
    """The software event counts the processor's nanoseconds: 1 J a second at 1e-9 J a count."""
    with opened(lay_out(tmp_path, {"energy-pkg": ("1e-9", "Joules")})) as source:
        first = source.read()["package-0"]
        time.sleep(0.02)
        last = source.read()["package-0"]
    assert isinstance(first, Reading)
    assert isinstance(last, Reading)
    energy = difference(first, last, source.zones[0].max_range_uj)
    assert energy.energy_uj is not None
    least_us = (last.t_before_ns - first.t_after_ns) / 1000
    most_us = (last.t_after_ns - first.t_before_ns) / 1000
    # The kernel keeps this event's time by another clock than ours: 1 % and 100 µs for that.
    assert 0.99 * least_us - 100 <= energy.energy_uj <= 1.01 * most_us + 100
    assert (energy.kind, energy.flags) == ("difference", ())


def test_zones_have_the_names_of_the_powercap_source(tmp_path: Path) -> None:
    with opened(lay_out(tmp_path, ALL)) as source:
        kinds = {zone.name: (zone.kind, zone.parent) for zone in source.zones}
        assert set(source.read()) == set(source.names) == set(kinds)
    assert kinds == {
        "package-0": ("package", None),
        "core": ("core", "package-0"),
        "uncore": ("uncore", "package-0"),
        "dram": ("dram", "package-0"),
        "psys": ("psys", None),
    }


@pytest.mark.parametrize(
    ("topology", "names"),
    [
        ({0: (0, 0), 1: (1, 0)}, ["package-0", "package-1", "package-0/dram", "package-1/dram"]),
        (
            {0: (0, 0), 1: (0, 1)},
            ["package-0-die-0", "package-0-die-1", "package-0-die-0/dram", "package-0-die-1/dram"],
        ),
    ],
    ids=["two sockets", "two dies"],
)
def test_one_counter_for_each_processor_of_the_mask(
    tmp_path: Path, topology: dict[int, tuple[int, int]], names: list[str]
) -> None:
    events = {name: ALL[name] for name in ("energy-pkg", "energy-ram")}
    with opened(lay_out(tmp_path, events, "0-1", topology)) as source:
        assert list(source.read()) == names


def test_the_platform_is_counted_once(tmp_path: Path) -> None:
    events = {"energy-psys": ("1e-9", "Joules")}
    with opened(lay_out(tmp_path, events, "0,1", {0: (0, 0), 1: (0, 1)})) as source:
        assert list(source.names) == ["psys"]


def test_the_kernels_scale_is_taken_exactly(tmp_path: Path) -> None:
    with opened(lay_out(tmp_path, {"energy-pkg": (EXACT_SCALE, "Joules")})) as source:
        event = source._events[0]
    assert event.uj_per_count * 2**32 == 10**6
    assert event.energy_uj(2**32 * 5) == 5_000_000
    assert event.energy_uj(2**63 + 1) == 2**31 * 10**6


def test_a_missing_perf_unit_is_refused(tmp_path: Path) -> None:
    with refuses("no-perf-events"):
        PerfSource.open(tmp_path)


def test_events_that_are_not_joules_are_left_out(tmp_path: Path) -> None:
    with refuses("no-joules"):
        PerfSource.open(lay_out(tmp_path, {"energy-pkg": ("1", "Watts")}))


@pytest.mark.parametrize(
    ("file", "content"),
    [("type", "software"), ("cpumask", "all"), ("events/energy-pkg", "umask=1")],
)
def test_an_invalid_description_is_refused(tmp_path: Path, file: str, content: str) -> None:
    lay_out(tmp_path, ALL)
    (tmp_path / "bus/event_source/devices/power" / file).write_text(content)
    with refuses("perf-unreadable"):
        PerfSource.open(tmp_path)


def test_a_counter_that_the_kernel_refuses_is_refused(tmp_path: Path) -> None:
    """The unit has no driver."""
    if platform.machine() != "x86_64":
        pytest.skip("perf_event_open's number is known for x86 alone")
    # The kernel asks who calls before it looks for the unit.
    with refuses("counter-unopened" if os.geteuid() == 0 else "counter-root-only", cpu=0):
        PerfSource.open(lay_out(tmp_path, ALL, kind=12345))


def test_missing_permission_gives_the_command_to_grant_it(tmp_path: Path) -> None:
    """The real kernel refuses at its present level."""
    lay_out(tmp_path, ALL)
    try:
        with as_nobody(tmp_path):
            PerfSource.open(tmp_path).close()
    except PerfError as error:
        message = str(error)
    else:
        pytest.skip("kernel.perf_event_paranoid lets everybody count on this machine")
    level = re.search(r"\(kernel.perf_event_paranoid is (-?\d)\)", message)
    assert level is not None
    assert int(level[1]) > 0
    assert "`sudo sysctl kernel.perf_event_paranoid=0`" in message


def test_an_unreadable_count_is_a_failed_read(tmp_path: Path) -> None:
    with opened(lay_out(tmp_path, {"energy-pkg": ("1e-9", "Joules")})) as source:
        with Path("/dev/null").open("rb") as empty:  # the kernel gives no bytes for a lost event
            source._descriptors, held = (empty.fileno(),), source._descriptors
            failed = source.read()["package-0"]
            source._descriptors = held
        assert isinstance(failed, ReadFailure)
        assert failed.error == "the counter gave no count"


@pytest.mark.parametrize("shared", [True, False], ids=["one counter", "a counter each"])
def test_dies_of_one_counter_are_mirrors_whenever_each_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shared: bool
) -> None:
    """Linux 6.9 to 6.12 lists each core complex of AMD's package, and all read its counter."""
    opened_at: dict[int, int] = {}

    def count_uj(event: Event, _: int) -> int:
        t_ms = time.monotonic_ns() // 10**6
        return (
            (t_ms - opened_at.setdefault(event.cpu, t_ms)) * 1000 * (1 + event.cpu * (not shared))
        )

    monkeypatch.setattr(perf, "_open", lambda _: os.open(os.devnull, os.O_RDONLY))
    monkeypatch.setattr(perf, "_energy_uj", count_uj)
    root = lay_out(
        tmp_path, {"energy-pkg": ALL["energy-pkg"]}, "0-2", {n: (0, n) for n in range(3)}
    )
    with PerfSource.open(root) as source:
        first = source.names[0]
        expected = [None, first, first] if shared else [None] * 3
        assert [zone.mirror_of for zone in source.zones] == expected
