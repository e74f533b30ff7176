"""Whole sessions with real recorders, clock, journal, requests and packing.

A shell replaces ssh; a process that replaces the agent is started in place of systemd and Ansible.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.system import lock
from analysis.stats.results import results
from contract import derived, journal, schema, strict_json
from contract import plan as plans
from contract.documents import SessionLine
from contract.errors import ControllerError
from contract.files import sha256_of
from contract.journal import REPEAT
from contract.messages import Message, Notify, Receiver
from contract.places import ROOT
from contract.plan import TargetDocument
from contract.tests.programs import meanwhile, wait_until
from contract.tests.refusal import refuses
from controller.planning import plan_folders
from controller.session import ending, journal_link, seal, session, watch
from controller.session.report import make_report
from controller.session.tests.test_recorders import meter, recorder, speaking
from controller.targets import connection, fitness, playbook, survey
from controller.targets.survey import TargetAnswer
from controller.tests.examples import NOW, facts, plan, resolved, suite_folder
from controller.tests.standin import Standin

pytestmark = pytest.mark.usefixtures("interruptible")
RUN_S = 0.5
# The service is the stand-in for the agent: it is active as long as that lives.
SYSTEMCTL = """#!/bin/sh
pid=$(cat {folder}/pid 2>/dev/null)
alive() {{ [ -n "$pid" ] && grep -q . /proc/$pid/cmdline 2>/dev/null; }}
case "$1" in
  show) alive && echo ActiveState=active || echo ActiveState=inactive ;;
  disable) ! alive || kill -TERM $pid ;;
esac
"""


class Scene:
    """A suite of six runs, its folders on controller and target, and a stand-in for Ansible."""

    def __init__(self, folder: Path, standin: Standin, link: Path) -> None:
        self.standin = standin
        systemctl = standin.folder / "bin" / "systemctl"
        systemctl.write_text(SYSTEMCTL.format(folder=standin.folder), encoding="utf-8")
        self.here = folder / "here"
        self.take(6)
        self.there = standin.suites / self.plan.suite_id
        self.target = resolved(meters=[schema.write(meter(link))], secrets_file="none")
        self.lines: list[str] = []
        self.agent: subprocess.Popen[bytes] | None = None
        self.starts = self.steps = 0
        self.run_s = RUN_S

    def take(self, runs: int, **changes: Any) -> None:
        """Plan that many runs, six per block."""
        document = plan(**{"attempts": 3, **changes})
        del document["sha256"]
        document |= {"runs": document["runs"][:runs], "blocks": runs // 6}
        self.document = plans.freeze(document)
        self.plan = plans.parse(self.document)
        suite_folder(self.here, self.document)

    def play(self, tag: str, **options: Any) -> None:
        """Start the stand-in agent or pack its results, as the plays do."""
        if tag == "start":
            self.starts += 1
            self.there.mkdir(exist_ok=True)
            shutil.copy(options["variables"]["suite_plan_file"], self.there / "plan.json")
            argv = [sys.executable, "-m", "controller.tests.stand_in_agent"]
            argv += [str(self.there), str(self.run_s), str(self.standin.lease)]
            self.close()
            agent = self.agent = subprocess.Popen(argv, cwd=ROOT)
            (self.standin.folder / "pid").write_text(str(self.agent.pid), encoding="utf-8")
            # With nothing left to run it ends at once.
            wait_until(lambda: lock.holder(self.there) or agent.poll() is not None)
        else:
            argv = [sys.executable, "-m", "agent", "pack", "--suite-dir", str(self.there)]
            out = options["variables"]["suite_archive_file"]
            subprocess.run([*argv, "--out", out], check=True, cwd=ROOT)

    def step(self, _target: TargetDocument) -> None:
        """Count the steps of load."""
        self.steps += 1

    def run(self, until: datetime | None = None) -> Path | None:
        inventory = Path("inventory")
        return session.run(self.here, self.target, inventory, self.lines.append, until)

    @property
    def sessions(self) -> list[str]:
        """The reason for the end of each session."""
        lines = strict_json.lines(SessionLine, self.here / "sessions.jsonl")
        return [line.ended for line in lines if line.wall_s is not None]

    @property
    def entries(self) -> list[journal.Entry]:
        """The journal's copy on the controller."""
        return journal.read(self.here / "journal.jsonl")

    def wait_for_run(self, number: int) -> None:
        """Wait until that run has begun on the target."""
        name = self.plan.runs[number].run_id
        path = self.there / "journal.jsonl"
        wait_until(lambda: path.exists() and f'"running", "run_id": "{name}"' in path.read_text())

    def require_complete(self) -> None:
        """Require that every run is finished, the seal holds, and no temporary file remains."""
        states = journal.last_states(self.entries)
        assert [states.get(run.run_id) for run in self.plan.runs] == ["finished"] * 6
        sums = json.loads((self.here / seal.MANIFEST).read_text(encoding="utf-8"))["files"]
        assert all(sha256_of(self.here / name) == digest for name, digest in sums.items())
        assert {"identity.json", "clock.jsonl", "journal.jsonl"} <= set(sums)
        hidden = [path.name for path in self.here.iterdir() if path.name.startswith(".")]
        assert set(hidden) <= {".lock", derived.MARKS}

    def close(self) -> None:
        if self.agent is not None:
            self.agent.kill()
            self.agent.wait()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(journal_link, "RETRY_S", 0.1)
    scene = Scene(tmp_path, Standin(tmp_path / "there", monkeypatch), tmp_path / "m")
    monkeypatch.setattr(playbook, "suite", scene.play)
    monkeypatch.setattr(fitness, "require_following", scene.step)
    with speaking(tmp_path / "m"):
        yield scene
        scene.close()


def test_a_suite_is_sealed_once_and_on_one_machine_only(scene: Scene) -> None:
    scene.run()
    scene.require_complete()
    assert (scene.starts, scene.steps) == (1, 1)
    with refuses("suite-sealed"):
        scene.run()
    log = (scene.here / "controller.log").read_text(encoding="utf-8")
    assert re.search(r"INFO .*the results are here\n(.*\n)*.*ERROR .*nothing is left to run", log)
    scene.require_complete()
    (scene.here / seal.MANIFEST).unlink()
    identity = json.loads((scene.here / "identity.json").read_text(encoding="utf-8"))
    other = json.dumps(identity | {"machine_id": "another"})
    (scene.here / "identity.json").write_text(other, encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in scene.here.rglob("*")}
    with refuses("other-machine"):
        scene.run()
    after = {path: path.stat().st_mtime_ns for path in scene.here.rglob("*")}
    unsealed = {scene.here / ".lock", scene.here / "controller.log"}
    assert {path for path in after if after[path] != before.get(path)} <= unsealed
    assert scene.starts == 1


def test_a_foreign_plan_wears_no_disk_without_consent(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running it asks once for the same consent as planning."""
    answer = TargetAnswer(facts(), disks=())  # no disk reports how much of its life is used
    monkeypatch.setattr(survey, "look", lambda _target: answer)
    precondition = {"passes": 10, "rounds": 25, "access": "random"}
    scene.take(6, precondition=precondition)
    run = partial(session.run, scene.here, scene.target, Path("inventory"), scene.lines.append)
    for serials in ((), ("plain",)):
        with refuses(
            "wear-needs-consent", command=f"fde run --confirm {'plain' if not serials else 'sed'}"
        ):
            run(confirm=serials)
    assert not scene.starts and not scene.there.exists()
    disks = {
        role: replace(disk, max_written_bytes=2**30) for role, disk in scene.target.disks.items()
    }
    with refuses("writes-beyond-limit", role="plain"):
        session.run(scene.here, replace(scene.target, disks=disks), Path("inventory"), print)
    assert run(confirm=("plain", "sed"))
    scene.require_complete()
    (folder,) = plan_folders.write_folders([scene.plan], scene.here.parent / "made", NOW)
    assert (
        plan_folders.needs_consent(
            scene.here.parent / "made" / folder.suite_id, scene.plan, scene.target
        )
        is False
    )


def test_messages_end_with_the_outcome_of_the_report(scene: Scene) -> None:
    log = scene.here.parent / "messages"
    note = ("sh", "-c", f"tr -d '\\n' >>{log}; echo >>{log}")
    receivers = (Receiver(name="log", argv=note),)
    target = replace(scene.target, notify=Notify(receivers=receivers))
    session.run(scene.here, target, Path("inventory"), scene.lines.append, report=True)
    messages = list(strict_json.lines(Message, log))
    assert [message.event for message in messages] == ["started", "finished", "sealed"]
    assert messages[-1].status and messages[-1].status.finished == 6
    assert "report passed; verify " in messages[-1].sentence  # no sums are in this journal
    assert (scene.here / "report.html").exists()
    scene.require_complete()
    assert str(log) not in (scene.here / "controller.log").read_text(encoding="utf-8")


def test_a_failed_report_is_an_outcome_and_no_error(tmp_path: Path) -> None:
    outcome = make_report(tmp_path / "none", lambda _: None)
    assert "report failed" in outcome and "verify failed" in outcome


def test_changes_so_far_appear_without_a_command_on_the_target(scene: Scene) -> None:
    scene.take(12)
    scene.run_s = 1.5  # the second block takes longer than the computation
    scene.run()
    answer = json.loads((scene.here / "status" / "status.json").read_text("utf-8"))["answer"]
    assert (answer["blocks"], answer["origin"]) == (1, "modelled")
    suite = results(scene.here).suite
    assert set(answer["ratios"]) == {suite.label(name) for name in ("opal", "dmcrypt-aes128")}
    assert all(0.5 < ratio < 2 for ratio in answer["ratios"].values())
    assert len([line for line in scene.lines if line.startswith("so far ")]) == 1
    assert "run.json" not in scene.standin.asked, "no command asks for it"
    assert sum("agent follow" in line for line in scene.standin.asked.splitlines()) == 1
    assert not (scene.here / "status" / "results").exists()


def test_a_local_target_computes_no_running_answer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "is_local", lambda _: True)
    monkeypatch.setattr(connection, "command", connection.ssh)
    scene.run()
    assert json.loads((scene.here / "status/status.json").read_text("utf-8"))["answer"] is None


def test_a_suite_without_a_meter_is_sealed(scene: Scene) -> None:
    scene.target = replace(scene.target, meters=())
    scene.run()
    scene.require_complete()
    assert not (scene.here / "meters").exists()


def test_an_unrecorded_run_is_repeated_before_the_seal(scene: Scene) -> None:
    def deafen() -> None:
        scene.wait_for_run(2)
        os.kill(recorder(scene.here), signal.SIGKILL)
        scene.wait_for_run(4)

    with meanwhile(deafen):
        scene.run()
    scene.require_complete()
    repeated = [entry.run_id for entry in scene.entries if entry.cause == REPEAT]
    assert scene.plan.runs[2].run_id in repeated
    assert scene.starts == 2
    assert any("asked for again" in line for line in scene.lines)
    assert (scene.here / "requests.jsonl").exists()


def test_a_sealed_suite_with_void_runs_is_resumed(scene: Scene) -> None:
    scene.there.mkdir()
    (scene.there / "broken").write_text(scene.plan.runs[1].run_id, encoding="utf-8")
    scene.run()
    assert journal.last_states(scene.entries)[scene.plan.runs[1].run_id] == "void"
    assert (scene.here / seal.MANIFEST).exists()
    (scene.there / "broken").unlink()
    scene.run()
    scene.require_complete()
    assert any("the seal is broken" in line for line in scene.lines)


def test_stop_now_fetches_the_results_and_the_suite_resumes(scene: Scene) -> None:
    """As Ctrl-C does: SIGTERM raises KeyboardInterrupt, too."""
    lines: list[str] = []

    def stop() -> None:
        scene.wait_for_run(1)
        watch.stop(scene.here, lines.append, at_once=True)

    scene.run_s = 3.0  # a busy machine must not finish before it is interrupted
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with meanwhile(stop), pytest.raises(KeyboardInterrupt):
            scene.run()
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert lines[-1].endswith("continues with it.")
    scene.run_s = RUN_S
    assert scene.entries[-1].state == "suite-failed"
    finished = [entry.run_id for entry in scene.entries if entry.state == "finished"]
    assert finished
    assert all((scene.here / "runs" / run_id / "run.json").exists() for run_id in finished)
    assert lock.holder(scene.here / "meters" / "meter0") is None
    scene.run()
    scene.require_complete()
    assert [e.run_id for e in scene.entries if e.state == "finished"][: len(finished)] == finished
    with refuses("nothing-runs"):
        watch.stop(scene.here, lines.append, at_once=False)


def test_a_killed_controller_loses_no_data(scene: Scene) -> None:
    """The session's process is killed; recorder and agent continue, and the next one finds them."""
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from contract import strict_json\n"
        "from contract.plan import TargetDocument\n"
        "from controller.session import session\n"
        "from controller.targets import connection, fitness, playbook\n"
        "fitness.require_following = lambda _: None\n"
        "connection.SUITES = sys.argv[3]\n"
        "def play(tag, **_):\n"
        "    print('started', flush=True)\n"
        "playbook.suite = play\n"
        "target = strict_json.parse(TargetDocument, sys.argv[2])\n"
        "session.run(Path(sys.argv[1]), target, Path('i'), lambda _: None)\n"
    )
    argv = [sys.executable, "-c", code, str(scene.here), json.dumps(scene.target.document())]
    with subprocess.Popen(
        [*argv, str(scene.standin.suites)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "started\n"
        variables = {"suite_plan_file": str(scene.here / "plan.json")}
        scene.play("start", variables=variables)
        scene.wait_for_run(1)
        first.kill()
    pid = recorder(scene.here)
    scene.wait_for_run(2)
    assert recorder(scene.here) == pid
    scene.run()
    scene.require_complete()
    finished = [entry.run_id for entry in scene.entries if entry.state == "finished"]
    assert finished[0] == scene.plan.runs[0].run_id
    assert not (scene.here / "meters" / "meter0.2").exists()
    assert not scene.steps, "a load would have disturbed the run"


def test_results_are_fetched_from_an_absent_or_full_target(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "AWAY_S", 0.1)
    refused: list[str] = []

    def play(tag: str, **options: Any) -> None:
        if tag != "fetch":
            scene.play(tag, **options)
            return
        if not refused:
            scene.standin.unplug()
        refused.append(tag)
        raise ControllerError("No space left on device")

    monkeypatch.setattr(playbook, "suite", play)

    def plug() -> None:
        wait_until(lambda: any("is away" in line for line in scene.lines))
        time.sleep(0.3)
        scene.standin.unplug(away=False)

    with meanwhile(plug):
        scene.run()
    assert len(refused) == 2  # away, then without room: it is sent over SSH
    scene.require_complete()


def test_a_suite_with_time_limits_takes_several_sessions(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first two sessions one workload would take too long."""
    monkeypatch.setattr(session, "next_time", lambda now_s, _: now_s + 300)
    long = [{"file_io": 1e4}, {"idle": 1e4}, {}]
    monkeypatch.setattr(ending, "longest_s", lambda *_: long[len(scene.sessions)])
    scene.take(6, run_limit_s=20.0)
    assert [scene.run(NOW) for _ in range(3)] == [None, None, scene.here / seal.MANIFEST]
    scene.require_complete()
    assert scene.sessions == ["until", "until", ""]
    starts = [entry.detail for entry in scene.entries if entry.state == "suite-started"]
    assert len(starts) == 3
    assert not any(entry.cause in journal.INTERRUPTIONS for entry in scene.entries)


def test_a_run_at_the_end_of_the_time_is_interrupted_and_repeated(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "FETCH_S", 0.0)
    monkeypatch.setattr(session, "next_time", lambda now_s, _: now_s + 10)
    scene.take(6, run_limit_s=1.0)
    scene.run_s = 60.0  # it breaks its limit
    assert scene.run(NOW) is None
    assert scene.sessions == ["until"]
    assert not (scene.here / seal.MANIFEST).exists()
    assert "finished" not in journal.last_states(scene.entries).values()
    scene.run_s = RUN_S
    scene.run()
    scene.require_complete()


def test_a_session_stopped_by_fde_stop_ends_after_its_run_and_is_resumed(scene: Scene) -> None:
    lines: list[str] = []

    def stop() -> None:
        scene.wait_for_run(1)
        watch.stop(scene.here, lines.append, at_once=False)

    scene.run_s = 3.0
    with meanwhile(stop):
        assert scene.run() is None
    assert scene.sessions == ["stopped"]
    assert scene.entries[-1].state == "suite-finished"
    finished = [e.run_id for e in scene.entries if e.state == "finished"]
    assert 2 <= len(finished) < 6
    assert lines[1] == f"{6 - len(finished)} of 6 runs are left."
    scene.run_s = RUN_S
    scene.run()
    scene.require_complete()
