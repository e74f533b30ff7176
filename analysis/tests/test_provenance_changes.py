"""What differs between the records of a suite's provenance is named, whatever it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.suite import provenance_changes

BEFORE: dict[str, Any] = {
    "wall": "2026-01-01",
    "boot_id": "a",
    "swaps": ["/dev/sda2 partition 100 0 -2"],
    "cpu": {"governor": "performance"},
    "settings": {"sys/vm/dirty_ratio": "20"},
    "disks": {"plain": {"scheduler": "[none] mq-deadline", "written_bytes": 1, "used_percent": 1}},
    "versions": {"cryptsetup": "2.7.5"},
}


def changed(path: str, value: object) -> dict[str, Any]:
    """Return the record with another value at a path of keys."""
    document: dict[str, Any] = json.loads(json.dumps(BEFORE))
    *above, last = path.split(":")
    inner = document
    for key in above:
        inner = inner[key]
    inner[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("disks:plain:scheduler", "none [mq-deadline]", "disks.plain.scheduler was [none] mq-dead"),
        ("settings:sys/vm/dirty_ratio", "40", "sys/vm/dirty_ratio was 20, then 40"),
        ("settings:sys/vm/new", "1", "sys/vm/new was absent, then 1"),
        ("cpu:governor", "powersave", "cpu.governor was performance, then powersave"),
        ("cpu:governor", None, "cpu.governor was performance, then absent"),
        ("versions:cryptsetup", "2.8.1", "cryptsetup was 2.7.5, then 2.8.1"),
        ("disks:plain:written_bytes", 2, ""),
        ("boot_id", "b", ""),
        ("wall", "2026-01-02", ""),
        ("swaps", ["/dev/sda2 partition 100 9 -2"], ""),
        ("locked_reads", {"S": {"error": "ENODATA", "link_before": "6.0 Gbps"}}, ""),
    ],
)
@pytest.mark.parametrize("name", ["after.json", "before-resumed-1.json"])
def test_what_changed_is_named_and_what_may_change_is_not(
    tmp_path: Path, name: str, path: str, value: object, named: str
) -> None:
    (tmp_path / "provenance").mkdir()
    (tmp_path / "provenance/before.json").write_text(json.dumps(BEFORE))
    (tmp_path / "provenance" / name).write_text(json.dumps(changed(path, value)))
    sentences = list(provenance_changes.changes(tmp_path, []))
    assert len(sentences) == bool(named)
    assert all(named in sentence and name in sentence for sentence in sentences)
