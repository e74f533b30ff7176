"""Whether the processor's zones add up on trees of powercap as kernels lay them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from analysis.energy.energy import energy_table
from analysis.suite.records import Counter, Phase, Suite
from analysis.suite.suite_folder import read
from instrumentation.sources.counter import MIRROR, Reading
from instrumentation.sources.powercap import PowercapSource
from instrumentation.sources.zones import kind_of
from instrumentation.tests.trees import TREES, Tree, counting
from validation.bench import Figure
from validation.synthetic.suite import Options, write_suite

S = 1_000_000_000


def measure(quick: bool = False) -> list[Figure]:
    """Count the trees whose packages and memory add up as in the report; if quick, every third."""
    with TemporaryDirectory(prefix="fde-sockets-") as folder:
        write_suite(Path(folder) / "suite", Options(blocks=1, workloads=("idle",)))
        suite = read(Path(folder) / "suite")
        trees = list(TREES.values())[:: 3 if quick else 1]
        right = 0
        for number, tree in enumerate(trees):
            root = Path(folder) / str(number)
            root.mkdir()
            joules = energies(tree, suite, root)
            right += all(sum_part(joules, part) == j for part, j in expected(tree).items())
    count = len(trees)
    return [Figure(f"trees summed right, of {count}", right, "", float(count), right == count)]


def energies(tree: Tree, suite: Suite, root: Path) -> dict[str, float]:
    """Return joules by component of a run in which the nth zone of the tree counted 10ⁿ J.

    `suite` is one with a run, whose counters are replaced.
    """
    place = tree.lay_out(root)
    with counting(root), PowercapSource.open(place, mirror_wait_s=5) as source:
        zones = source.zones
    used_j = _used_j(tree)
    counters = tuple(
        Counter(
            "powercap",
            zone.name,
            Reading(0, 10, 0),
            Reading(S, S + 10, round(used_j[zone.mirror_of or zone.name] * 1e6)),
            None,
            (MIRROR,) if zone.mirror_of else (),
        )
        for zone in zones
    )
    run = replace(suite.runs[0], phases=(Phase("write", 0, S, counters, {}),))
    energy = energy_table(replace(suite, runs=(run,), meters=()))
    rows = energy.filter(pl.col("phase") == "all").select("component", "energy_j")
    return dict(rows.iter_rows())


def expected(tree: Tree) -> dict[str, float | None]:
    """Return the joules of all packages and of all memory; None for a tree without."""
    used_j = _used_j(tree)
    memory = [name for name in tree.add_up if kind_of(name) == "dram"]
    packages = [name for name in tree.add_up if name not in memory]
    return {
        part: sum(used_j[name] for name in names) if names else None
        for part, names in (("package", packages), ("dram", memory))
    }


def sum_part(joules: Mapping[str, float], part: str) -> float | None:
    """Return the sum of a part, which with one socket is the zone itself."""
    return joules.get(part, joules.get({"package": "package-0"}.get(part, part)))


def _used_j(tree: Tree) -> dict[str, float]:
    return {name: 10.0**place for place, name in enumerate(tree.names)}
