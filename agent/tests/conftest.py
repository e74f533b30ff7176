from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import measure
from agent.tests.builders import LoopDisks
from agent.tests.check_context import Machine, build
from agent.tests.guest import Target
from agent.tests.suite_lab import Lab, blocks_document


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
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
def one_block(suite: Lab) -> Lab:
    """Four runs, each tried three times, and a plan that other processes read."""
    suite.change(**blocks_document(), attempts=3)
    return suite


@pytest.fixture
def place(tmp_path: Path) -> Machine:
    """Provide a machine of files on which every check passes."""
    return build(tmp_path)


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[LoopDisks]:
    disks = LoopDisks(tmp_path)
    yield disks
    disks.detach_all()


@pytest.fixture(scope="module")
def target(lab: Any, request: pytest.FixtureRequest) -> Iterator[Target]:
    """Provide the guest's agent, prepared for a module's CONFIGURATIONS on EXTENT_BYTES."""
    extent_bytes = getattr(request.module, "EXTENT_BYTES", 64 * 2**20)
    target = Target(lab, request.module.CONFIGURATIONS, extent_bytes)
    target.agent("prepare")
    yield target
    target.agent("teardown")
