"""The powercap reader over trees of real files laid out as kernels lay them out."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from instrumentation.sources.counter import ReadFailure, Reading
from instrumentation.sources.powercap import PowercapError, PowercapSource
from instrumentation.sources.zones import discover

MAX_UJ = 262_143_328_850
Tree = dict[str, str]  # path below the root -> name of the zone


def lay_out(root: Path, tree: Tree) -> Path:
    for number, (path, name) in enumerate(tree.items()):
        zone = root / path
        zone.mkdir(parents=True)
        (zone / "name").write_text(name + "\n")
        (zone / "energy_uj").write_text(f"{1000 + number}\n")
        (zone / "max_energy_range_uj").write_text(f"{MAX_UJ}\n")
    return root


ONE_SOCKET: Tree = {
    "intel-rapl/intel-rapl:0": "package-0",
    "intel-rapl/intel-rapl:0/intel-rapl:0:0": "core",
    "intel-rapl/intel-rapl:0/intel-rapl:0:1": "uncore",
    "intel-rapl/intel-rapl:0/intel-rapl:0:2": "dram",
}
PSYS_BETWEEN: Tree = {
    "intel-rapl/intel-rapl:0": "package-0",
    "intel-rapl/intel-rapl:0/intel-rapl:0:0": "dram",
    "intel-rapl/intel-rapl:1": "psys",
    "intel-rapl/intel-rapl:2": "package-1",
    "intel-rapl/intel-rapl:2/intel-rapl:2:0": "dram",
}
MMIO_TWIN: Tree = {
    **ONE_SOCKET,
    "intel-rapl-mmio/intel-rapl-mmio:0": "package-0",
    "intel-rapl-mmio/intel-rapl-mmio:0/intel-rapl-mmio:0:0": "dram",
}
MULTI_DIE: Tree = {
    "intel-rapl/intel-rapl:0": "package-0-die-0",
    "intel-rapl/intel-rapl:0/intel-rapl:0:0": "dram",
    "intel-rapl/intel-rapl:1": "package-0-die-1",
    "intel-rapl/intel-rapl:1/intel-rapl:1:0": "dram",
}
MANY: Tree = {f"intel-rapl/intel-rapl:{n}": f"package-{n}" for n in range(12)}


@pytest.mark.parametrize(
    ("tree", "names"),
    [
        (ONE_SOCKET, ["package-0", "core", "uncore", "dram"]),
        (PSYS_BETWEEN, ["package-0", "package-0/dram", "psys", "package-1", "package-1/dram"]),
        (MMIO_TWIN, ["package-0", "core", "uncore", "dram"]),
        (
            MULTI_DIE,
            [
                "package-0-die-0",
                "package-0-die-0/dram",
                "package-0-die-1",
                "package-0-die-1/dram",
            ],
        ),
        (MANY, [f"package-{n}" for n in range(12)]),
    ],
    ids=["one socket", "psys between packages", "mmio twin", "multi-die", "twelve packages"],
)
def test_every_counter_once_by_its_name(tmp_path: Path, tree: Tree, names: list[str]) -> None:
    with PowercapSource.open(lay_out(tmp_path, tree)) as source:
        assert [zone.name for zone in source.zones] == names
        readings = source.read()
    assert list(readings) == names
    # The numbers in the files follow the tree's order; a twin's number must not stand for its
    # zone's.
    taken = [r.energy_uj for r in readings.values() if isinstance(r, Reading)]
    assert taken == [1000 + n for n in range(len(names))]


def test_flat_links_alone_are_enough(tmp_path: Path) -> None:
    real = lay_out(tmp_path / "devices", ONE_SOCKET)
    root = tmp_path / "class"
    root.mkdir()
    zone = real / "intel-rapl/intel-rapl:0"
    (root / "intel-rapl:0").symlink_to(zone)
    (root / "intel-rapl:0:0").symlink_to(zone / "intel-rapl:0:0")
    assert [z.name for z in discover(root)] == ["package-0", "core", "uncore", "dram"]


def test_package_known_to_mmio_alone_is_read(tmp_path: Path) -> None:
    tree = {"intel-rapl-mmio/intel-rapl-mmio:0": "package-0"}
    assert [zone.name for zone in discover(lay_out(tmp_path, tree))] == ["package-0"]


@pytest.mark.parametrize("content", ["0\n", None])
def test_unknown_range_is_none(tmp_path: Path, content: str | None) -> None:
    root = lay_out(tmp_path, {"intel-rapl/intel-rapl:0": "package-0"})
    file = root / "intel-rapl/intel-rapl:0/max_energy_range_uj"
    file.unlink() if content is None else file.write_text(content)
    assert discover(root)[0].max_range_uj is None


def test_reads_follow_the_counter_between_two_stamps(tmp_path: Path) -> None:
    root = lay_out(tmp_path, {"intel-rapl/intel-rapl:0": "package-0"})
    file = root / "intel-rapl/intel-rapl:0/energy_uj"
    with PowercapSource.open(root) as source:
        first = source.read()["package-0"]
        file.write_text("262143328850\n")
        second = source.read()["package-0"]
        file.write_text("7\n")
        third = source.read()["package-0"]
    assert isinstance(first, Reading)
    assert isinstance(second, Reading)
    assert isinstance(third, Reading)
    assert (second.energy_uj, third.energy_uj) == (262_143_328_850, 7)
    assert first.t_before_ns <= first.t_after_ns <= second.t_before_ns <= second.t_after_ns


def test_failing_zone_leaves_the_others(tmp_path: Path) -> None:
    root = lay_out(tmp_path, ONE_SOCKET)
    with PowercapSource.open(root) as source:
        (root / "intel-rapl/intel-rapl:0/intel-rapl:0:0/energy_uj").write_text("")
        readings = source.read()
    assert isinstance(readings["core"], ReadFailure)
    assert readings["core"].error
    assert isinstance(readings["dram"], Reading)


def test_no_zone_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(PowercapError, match="sudo modprobe intel_rapl_msr"):
        PowercapSource.open(tmp_path)


def test_unreadable_counter_gives_a_command_that_mends_it(tmp_path: Path) -> None:
    root = lay_out(tmp_path, ONE_SOCKET)
    for file in root.rglob("energy_uj"):
        file.chmod(0o400)
    as_root = os.geteuid() == 0
    if as_root:  # root may read everything: be somebody else for a moment
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_mode & 0o001 == 0:
                folder.chmod(folder.stat().st_mode | 0o111)
        os.seteuid(65534)
    else:
        for file in root.rglob("energy_uj"):
            file.chmod(0o000)
    try:
        with pytest.raises(PowercapError, match="root only") as caught:
            PowercapSource.open(root)
        command = re.search(r"`sudo (.*)`", str(caught.value))
    finally:
        if as_root:
            os.seteuid(0)
    assert command is not None
    assert os.system(command[1]) == 0
    if as_root:
        os.seteuid(65534)
    try:
        PowercapSource.open(root).close()
    finally:
        if as_root:
            os.seteuid(0)
