"""Some folders that came from elsewhere; `python -m agent.tests.hostile_folders` has more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.tests.hostile_folders import ROOT, Watch


def test_hostile_folders_end_in_a_result_or_a_sentence(tmp_path: Path, thorough: bool) -> None:
    """Nothing is started, nothing written outside; in a process of its own, which is watched."""
    count, out = 200 if thorough else 40, tmp_path / "figures.json"
    argv = [sys.executable, "-m", "agent.tests.hostile_folders", "--count", str(count)]
    # Pools of threads cost more than these few rows.
    environment = {**os.environ, "POLARS_MAX_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([*argv, "--out", str(out)], cwd=ROOT, env=environment, check=False)
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert not figures["faults"], json.dumps(figures["found"], indent=1)
    assert figures["cases"] == count
    assert min(figures["outcomes"][ending] for ending in ("result", "refused")) >= count / 10
    assert len(figures["commands"]) > 5


def test_the_audit_hook_hears_forbidden_events(tmp_path: Path) -> None:
    """It would be of no use if it slept."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside / "through")
    watch = Watch(["ssh", "as", "expected"])
    watch.allowed = (inside,)
    watch.on = True
    (inside / "file").write_text("x", encoding="utf-8")
    assert watch.seen == []
    (inside / "link").write_text("x", encoding="utf-8")
    (inside / "file").rename(outside / "moved")
    subprocess.run(["true"], check=True)
    with pytest.raises(OSError):
        os.open(outside / "new", os.O_CREAT | os.O_DIRECTORY | os.O_RDWR)
    watch.on = False
    kinds = [event.partition(":")[0] for event in watch.seen]
    assert kinds.count("written outside") == 3 and "started" in kinds
