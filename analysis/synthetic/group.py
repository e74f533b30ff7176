"""A group of hosts whose effects are known: the same on each of them, or their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from analysis.synthetic.suite import SLOWER, Options, write_suite

GROUP = "synthetic-20260101T000000Z"
MACHINES = (
    ("Intel(R) Core(TM) i5-7500 CPU @ 3.40GHz", "ExampleMaker A100"),
    ("AMD Ryzen 5 3600 6-Core Processor", "ExampleMaker B200"),
    ("Intel(R) Xeon(R) E-2136 CPU @ 3.30GHz", "OtherMaker C3"),
    ("ARM Neoverse-N1", "OtherMaker D4"),
)


def write_group(root: Path, dearer: Mapping[str, float], options: Options | None = None) -> Path:
    """Suites of hosts below `root`, and the group's folder, which is returned.

    `dearer` says by host how many times as much time encryption in software adds there.
    """
    o = options or Options()
    ids = []
    for number, (host, factor) in enumerate(dearer.items()):
        slower = {
            name: 1 + (ratio - 1) * (factor if name.startswith("dmcrypt") else 1.0)
            for name, ratio in SLOWER.items()
        }
        cpu, disk = MACHINES[number % len(MACHINES)]
        machine = {
            "cpu": {"model": cpu},
            "disks": {role: {"model": f"{disk} {role}"} for role in ("plain", "sed")},
        }
        suite_id = f"synthetic-{host}-20260101T000000Z"
        own = replace(
            o, host=host, group=GROUP, slower=slower, seed=o.seed + number, machine=machine
        )
        write_suite(root / suite_id, own)
        ids.append(suite_id)
    folder = root / GROUP
    folder.mkdir()
    document = {"format": "fde-group/1", "group": GROUP, "suites": ids, "hosts": list(dearer)}
    (folder / "group.json").write_text(json.dumps(document), encoding="utf-8")
    return folder
