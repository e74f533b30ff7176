"""One suite whose agent is killed within a line of its journal, and whose target loses its power.

The faults of `make test-faults` in small: what is begun again must come to the same end, and what
was finished before must still be there. The guest boots once, so this stands after what watches it.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lab.state import Layout
from validation.faults import cuts, kills
from validation.faults.trial import AT_WORK, FILE_IO, Small, Trial
from validation.scene import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

KILL = ("proving", "half")
SMALL = Small(blocks=2, loads=(FILE_IO,), configurations=("plain", "opal"))


def test_a_killed_agent_and_a_power_cut_lose_nothing(provisioned: Any, tmp_path: Path) -> None:
    scene = Scene(tmp_path, Layout(provisioned.lab.directory), provisioned.build, print)
    suite_dir = SMALL.write_plan(scene, "survives", 1, tmp_path / "suites")
    with Trial(scene, "survives", suite_dir) as trial:
        kills.order(scene, [KILL])
        try:
            trial.wait_state("finished")
            assert [(kill["state"], kill["moment"]) for kill in kills.done(scene)] == [KILL]
        finally:
            kills.clear(scene)
        trial.mark()
        before = trial.wait_state(*AT_WORK).entry
        start = trial.mark()
        cuts.cut(trial, random.Random(1))
        cuts.resumed_s(trial, before.boot_id, start)
        trial.finish(600)
        verdicts = trial.judge([])
    states = [line.entry.state for line in trial.observer.lines()]
    assert states.count("void") >= 2
    assert states.count("suite-started") >= 3
    assert verdicts["lost"] == verdicts["false"] == verdicts["problems"] == []
    assert verdicts["finished"] == verdicts["runs"] == 4
    assert verdicts["verified"]
