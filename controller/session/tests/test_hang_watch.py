"""Power cycles of a hanging target: once per hang, limited, and recorded."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from contract import plan as plans
from contract import strict_json
from contract.documents import PowerLine
from contract.plan import PowerSwitch
from contract.strict_json import read_object
from contract.tests.programs import wait_until
from contract.tests.refusal import refuses
from controller.planning import plan_folders
from controller.session import hang_watch, session, target_identity
from controller.session.agent_client import AgentClient, Completed
from controller.session.hang_watch import STEP_S, HangWatch
from controller.session.status import Board
from controller.targets import check, fitness, playbook, power_return
from controller.targets.power_return import off_mark, return_power
from controller.tests.examples import plan, resolved, suite_folder
from instrumentation import power_switch
from instrumentation.tests.test_power_switch import OBEYS, a_switch, asked

TARGET = resolved(host=plans.parse(plan()).host)
PLAN = replace(plans.parse(plan()), run_limit_s=100.0)


class Scene:
    """A suite's folder, a switch that logs its commands, and the target at its outlet.

    With `elsewhere` the target is at another outlet, which always has power.
    """

    def __init__(
        self, folder: Path, deed: str = OBEYS, *, elsewhere: bool = False, **settings: float
    ) -> None:
        self.folder, self.log, self.elsewhere = folder, folder / "log", elsewhere
        self.answers = True
        argv = a_switch(self.log, deed)
        self.switch = PowerSwitch(argv=argv, hang_s=60.0, off_s=0.0, **settings)  # type: ignore[arg-type]
        self.lines: list[str] = []
        self.board = Board(PLAN, folder, self.lines.append)
        self.hangs = HangWatch(PLAN, self.switch, folder, self.board, self.ask_boot, "0")

    def ask_boot(self) -> str:
        """Return how often the target lost its power; empty while it has none."""
        if self.elsewhere or not self.log.exists():
            return "0"
        is_on = Path(f"{self.log}.state").read_text(encoding="utf-8") == "on\n"
        return str(asked(self.log).count("off")) if is_on and self.answers else ""

    @property
    def is_off(self) -> bool:
        """Whether status.json reports the target as off."""
        return bool(read_object(self.folder / "status" / "status.json")["target_off"])

    def require(self, *causes: str) -> None:
        lines = list(strict_json.lines(PowerLine, self.folder / "power.jsonl"))
        assert [line.cause for line in lines] == list(causes)
        wait_until(lambda: asked(self.log) == ["off", "status", "on", "status"] * len(causes))
        wait_until(lambda: not off_mark(PLAN.host).exists())


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for module in (hang_watch, power_return):
        monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr(power_return, "BOOT_S", 0.1)
    monkeypatch.setattr(power_switch, "PAUSE_S", 0.01)
    monkeypatch.setattr(power_switch, "AGREE_S", 0.2)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def scene_away(tmp_path: Path) -> Scene:
    return Scene(tmp_path, AWAY)


def test_a_silent_target_is_power_cycled_once_per_hang(scene: Scene) -> None:
    for lost_s in (0.0, 30.0, 59.0):
        scene.hangs.observe(lost_s)
    scene.require()
    for lost_s in (60.0, 61.0, 4000.0):
        scene.hangs.observe(lost_s)
    scene.require("lost")
    for lost_s in (0.0, 70.0):
        scene.hangs.observe(lost_s)
    scene.require("lost", "lost")


def test_a_run_beyond_its_limits_is_a_hang(scene: Scene) -> None:
    scene.hangs.observe(0.0, 100.0 + STEP_S + 59.0)
    scene.require()
    scene.hangs.observe(0.0, 100.0 + STEP_S + 61.0)
    scene.require("stuck")


def test_power_cycles_are_limited_across_sessions(tmp_path: Path) -> None:
    for _ in range(3):
        scene = Scene(tmp_path, most=2)
        scene.hangs.observe(61.0)
        scene.hangs.close()
    scene.require("lost", "lost")


def test_a_hang_without_a_switch_does_nothing(scene: Scene) -> None:
    HangWatch(PLAN, None, scene.folder, scene.board, scene.ask_boot, "0").observe(1e6)
    scene.require()


# Absent until the file `there` exists; meanwhile it neither switches nor answers.
AWAY = '[ "$1" = off ] || [ -e "$log.there" ] || exit 7; ' + OBEYS


def test_target_off_lasts_until_the_switch_reads_on(
    scene_away: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_away
    monkeypatch.setattr(power_switch, "AGREE_S", 0.0)
    scene.hangs.observe(61.0)
    wait_until(lambda: asked(scene.log).count("on") > 12)  # longer than anybody gave up after
    assert scene.is_off and off_mark(PLAN.host).exists()
    assert any("switch reports off" in line for line in scene.lines)
    for lost_s in (0.0, 61.0):  # a second hang does not begin before the first is over
        scene.hangs.observe(lost_s)
    assert asked(scene.log).count("off") == 1
    return_power(TARGET, lambda: True, print)  # leaves it to the session that is at it
    assert off_mark(PLAN.host).exists()
    Path(f"{scene.log}.there").touch()
    wait_until(lambda: not off_mark(PLAN.host).exists())
    scene.hangs.close()
    assert not scene.is_off and asked(scene.log)[-2:] == ["on", "status"]


@pytest.mark.parametrize("begin", ["session", "new-suite", "check"])
def test_the_next_command_restores_power_that_a_session_left_off(
    begin: str, scene_away: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_away
    scene.hangs.observe(61.0)
    wait_until(lambda: "on" in asked(scene.log))
    scene.hangs.close()  # the session ends; the switch is still away
    assert off_mark(TARGET.host).exists()
    shutil.rmtree(scene.folder / "status")  # another suite knows nothing of this one
    count = len(asked(scene.log))
    lines: list[str] = []
    target = replace(TARGET, power=scene.switch)

    def reached(*_: object) -> bool:
        if len(asked(scene.log)) > count + 3:
            Path(f"{scene.log}.there").touch()
        return Path(f"{scene.log}.state").read_text(encoding="utf-8") == "on\n"

    def require_ready() -> None:
        if begin == "session":
            return_power(target, reached, lines.append)
        elif begin == "new-suite":
            fitness.require_ready([target], scene.folder, lines.append)
        else:
            check.run(Path("hosts.yml"), print)

    monkeypatch.setattr(fitness, "is_reached", reached)
    monkeypatch.setattr(fitness, "judge", lambda *_: [])
    monkeypatch.setattr(fitness, "step_load", lambda scene: scene)
    examination = SimpleNamespace(answer=None, target=target)
    monkeypatch.setattr(fitness, "examine", lambda *_, **__: examination)
    monkeypatch.setattr(playbook, "resolve", lambda _: playbook.Inventory([target], {}))
    if begin == "check":  # which tries once
        require_ready()
        assert off_mark(TARGET.host).exists()
        Path(f"{scene.log}.there").touch()
    require_ready()
    assert not off_mark(TARGET.host).exists() and len(lines) == (0 if begin == "check" else 3)
    count = len(asked(scene.log))
    require_ready()  # nothing is left
    assert len(asked(scene.log)) == count


def test_a_target_left_off_is_refused_until_it_answers() -> None:
    mark = off_mark(TARGET.host)
    mark.parent.mkdir(parents=True)
    mark.touch()
    return_power(replace(TARGET, host="other"), lambda: True, print)
    with refuses("target-off"):
        return_power(TARGET, lambda: False, print)
    assert mark.exists()
    return_power(TARGET, lambda: True, print)  # somebody switched it on
    assert not mark.exists()


def test_a_switch_that_fails_once_more_ends_a_stopped_command_with_its_reason(
    scene_away: Scene,
) -> None:
    mark = off_mark(TARGET.host)
    mark.parent.mkdir(parents=True)
    mark.touch()
    target = replace(TARGET, power=scene_away.switch)
    Path(f"{scene_away.log}.state").write_text("off\n", encoding="utf-8")
    with refuses("target-off") as caught:
        return_power(target, lambda: False, print, is_stopped=lambda: True)
    assert "and the switch reports off. Switch it on" in str(caught.value)


def test_a_target_left_off_is_refused_before_it_is_asked(
    scene_away: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that needs consent asks the agent before anything else."""
    scene = scene_away
    mark = off_mark(PLAN.host)
    mark.parent.mkdir(parents=True)
    mark.touch()
    suite_folder(scene.folder, plan())
    monkeypatch.setattr(plan_folders, "needs_consent", lambda *_: True)
    monkeypatch.setattr(AgentClient, "ask", lambda *_, **__: Completed((), 255, b"", b""))
    monkeypatch.setattr(target_identity, "require_same_target", lambda *_: None)
    with refuses("target-off"):
        session.run(scene.folder, TARGET, Path("inventory"), scene.lines.append)
    assert mark.exists()


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ('echo on >"$log.state"', "was not switched off"),  # the command is ignored
        (OBEYS, "answers from the same boot"),  # the contact is welded, or another target's
    ],
)
def test_a_target_that_kept_its_power_is_not_reported_as_switched(
    deed: str, words: str, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, deed, elsewhere=True)
    scene.hangs.observe(61.0)
    wait_until(lambda: not off_mark(PLAN.host).exists())
    scene.hangs.close()
    assert any(words in line for line in scene.lines), scene.lines
    assert not any("has power again" in line for line in scene.lines)


def test_a_target_that_does_not_answer_may_be_off(scene: Scene) -> None:
    """The switch reports on: that is no evidence of power at the target."""
    scene.answers = False
    scene.hangs.observe(61.0)
    wait_until(lambda: any("may be OFF" in line for line in scene.lines))
    assert scene.is_off and off_mark(PLAN.host).exists()
    assert not any("has power again" in line for line in scene.lines)
    scene.answers = True
    wait_until(lambda: not off_mark(PLAN.host).exists())
    scene.hangs.close()
    assert scene.lines[-1] == "the target has power again"


def test_a_session_that_ends_before_the_answer_leaves_it_to_the_next(scene: Scene) -> None:
    scene.answers = False
    scene.hangs.observe(61.0)
    scene.hangs.close()
    with refuses("target-off", reason=power_return.NO_ANSWER):
        return_power(replace(TARGET, power=scene.switch), lambda: False, print)
    assert off_mark(PLAN.host).exists()


@pytest.mark.parametrize("status", ["sleep 600", "exit 7"])
def test_a_switch_that_hangs_halfway_leaves_a_target_that_may_be_off(
    status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power_switch, "PROGRAM_S", 0.2)
    scene = Scene(tmp_path)
    argv = a_switch(scene.log, f"{OBEYS}; sleep 600", status)
    scene.hangs.switch = replace(scene.switch, argv=argv)
    scene.hangs.observe(61.0)
    wait_until(lambda: "on" in asked(scene.log))
    scene.hangs.close()
    assert any("Its power may be off" in line for line in scene.lines)
    assert scene.is_off and off_mark(PLAN.host).exists()
