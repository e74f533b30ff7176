"""When a target is switched off and on: once a hang, as often as allowed, and on record."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from contract import plan as plans
from contract import strict_json
from contract.documents import PowerLine
from contract.places import ROOT
from contract.plan import PowerSwitch
from controller.session.hang_watch import STEP_S, HangWatch
from controller.session.status import Board
from controller.session.tests.test_recorders import wait_until
from controller.tests.examples import plan
from instrumentation.tests.noting_plug import NotingPlug

PLAN = replace(plans.parse(plan()), run_limit_s=100.0)


class Scene:
    """A suite's folder, and a switch that counts."""

    def __init__(self, folder: Path, **settings: float) -> None:
        self.folder, self.log = folder, folder / "log"
        argv = ("sh", "-c", f"echo cycled >>{self.log}")
        switch = PowerSwitch(kind="program", argv=argv, hang_s=60.0, **settings)  # type: ignore[arg-type]
        self.board = Board(PLAN, folder, lambda _: None)
        self.hangs = HangWatch(PLAN, switch, folder, self.board)

    def require(self, *causes: str) -> None:
        lines = list(strict_json.lines(PowerLine, self.folder / "power.jsonl"))
        assert [line.cause for line in lines] == list(causes)
        wait_until(lambda: not causes or self.log.exists())
        wait_until(lambda: not causes or self.log.read_text().count("cycled") == len(causes))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_silent_target_is_cycled_once_a_hang(scene: Scene) -> None:
    for lost_s in (0.0, 30.0, 59.0):
        scene.hangs.observe(lost_s)
    scene.require()
    for lost_s in (60.0, 61.0, 4000.0):
        scene.hangs.observe(lost_s)
    scene.require("lost")
    for lost_s in (0.0, 70.0):
        scene.hangs.observe(lost_s)
    scene.require("lost", "lost")


def test_a_run_beyond_all_limits_is_a_hang_and_a_long_run_is_none(scene: Scene) -> None:
    scene.hangs.observe(0.0, 100.0 + STEP_S + 59.0)
    scene.require()
    scene.hangs.observe(0.0, 100.0 + STEP_S + 61.0)
    scene.require("stuck")


def test_no_more_often_than_allowed_also_by_another_session(tmp_path: Path) -> None:
    for _ in range(3):
        scene = Scene(tmp_path, most=2)
        scene.hangs.observe(61.0)
    scene.require("lost", "lost")


def test_without_a_switch_nothing_is_done(scene: Scene) -> None:
    HangWatch(PLAN, None, scene.folder, scene.board).observe(1e6)
    scene.require()


SESSION = """
import sys
from pathlib import Path
from contract.plan import PowerSwitch
from controller.session.hang_watch import HangWatch
from controller.session.status import Board
from controller.session.tests.test_hang_watch import PLAN
folder, address = Path(sys.argv[1]), sys.argv[2]
switch = PowerSwitch(kind="shelly", address=address, hang_s=60.0, off_s=0.5)
HangWatch(PLAN, switch, folder, Board(PLAN, folder, print)).observe(61.0)
"""


def test_a_session_that_ends_meanwhile_gives_the_power_back(tmp_path: Path) -> None:
    plug = NotingPlug("shelly-switch")
    server = plug.serve("127.0.0.1", 0, "")
    try:
        words = [sys.executable, "-c", SESSION, str(tmp_path), server.address]
        subprocess.run(words, check=True, cwd=ROOT, capture_output=True)
    finally:
        server.close()
    assert (plug.let_through[0], plug.let_through[-1]) == (False, True)
