from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import measure
from agent.tests.builders import LoopDisks
from agent.tests.suite_lab import Lab, blocks_document
from contract import plan


@pytest.fixture
def three_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Twelve runs, each tried as often as a plan says by itself."""
    lab = Lab(tmp_path, blocks=3)
    monkeypatch.setattr("workloads.registry.load", lab.load)
    monkeypatch.setattr("agent.storage.proof.prove", lambda *_, **__: lab.proof)
    monkeypatch.setattr("agent.checks.TABLE", ())
    monkeypatch.setattr(measure, "DROP_CACHES", tmp_path / "drop_caches")
    monkeypatch.setattr(measure, "SCRATCH_ROOT", tmp_path)
    monkeypatch.setattr("agent.provenance.gather", lambda _spec: {})
    # The disks of the plan are not this machine's.
    monkeypatch.setattr("agent.readiness.Waits.for_disks", lambda *_: None)
    yield lab
    lab.counters.close()


@pytest.fixture
def one_block(three_blocks: Lab) -> Lab:
    """Four runs, each tried three times, and a plan that other processes read."""
    document = plan.freeze({**blocks_document(), "attempts": 3})
    three_blocks.plan = plan.parse(document)
    (three_blocks.folder / "plan.json").write_text(json.dumps(document))
    return three_blocks


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[LoopDisks]:
    disks = LoopDisks(tmp_path)
    yield disks
    disks.detach_all()
