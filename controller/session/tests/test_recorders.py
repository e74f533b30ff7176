"""Recorders that are killed, left behind and replaced, with a simulated meter."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from agent.system import lock
from contract.files import sha256_of
from contract.journal import boot_id
from contract.places import ROOT
from contract.plan import MeterEntry
from contract.tests.programs import meanwhile, wait_until
from contract.tests.refusal import refuses
from controller.session import recorders, seal
from controller.session.recorders import Recorders, end_leftovers, folder_for
from controller.tests.examples import plan, suite_folder
from instrumentation.decode import decode
from instrumentation.simulators.play import SimulatedPort
from instrumentation.simulators.smartpower3 import SmartPower3Simulator


@contextlib.contextmanager
def speaking(link: Path, simulator: SmartPower3Simulator | None = None) -> Iterator[None]:
    """Simulate a SmartPower3 at `link`, which sends a line each 10 ms of its clock."""
    simulator = simulator or SmartPower3Simulator()
    port = SimulatedPort(link)
    unplugged = threading.Event()

    begun_ms = time.monotonic_ns() // 1_000_000 - simulator.t_ms

    def play() -> None:
        while not unplugged.wait(0.01):
            now_ms, step_ms = time.monotonic_ns() // 1_000_000 - begun_ms, simulator.interval_ms
            ends_s = np.arange(simulator.t_ms + step_ms, now_ms + 1, step_ms) / 1000
            if len(ends_s):
                port.send(simulator.advance(np.stack([20.0 * ends_s, 1.0 * ends_s], axis=1)))

    with contextlib.closing(port), meanwhile(play, unplugged.set):
        yield


def meter(link: Path, name: str = "meter0") -> MeterEntry:
    """Return the meter's entry in a resolved target."""
    return MeterEntry(name, "smartpower3", str(link), "modelled", {"0": "system"}, 115200)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "PAUSE_S", 0.0)


@contextlib.contextmanager
def recording(suite_dir: Path, messages: list[str]) -> Iterator[Recorders]:
    with (
        speaking(suite_dir / "m"),
        Recorders([meter(suite_dir / "m")], suite_dir, messages.append) as all_,
    ):
        yield all_


def recorder(suite_dir: Path) -> int:
    """Return the pid of the recorder."""
    pid = lock.holder(suite_dir / "meters" / "meter0")
    assert pid is not None
    return pid


def test_a_killed_recorder_is_started_again_in_its_stream(tmp_path: Path) -> None:
    messages: list[str] = []
    folder = tmp_path / "meters" / "meter0"
    with recording(tmp_path, messages) as all_:
        wait_until(lambda: all_.watts() == {"system": pytest.approx(20.0)})
        pid = recorder(tmp_path)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: "not at work" in all_.silence())
        wait_until(lambda: all_.tend() or messages)  # type: ignore[func-returns-value]
        wait_until(lambda: not all_.silence())
        assert lock.holder(folder) not in (pid, None)
    assert len(messages) == 1
    assert messages[0].startswith("the recorder of meter meter0 ended")
    assert decode(folder).samples["epoch"].unique().sort().to_list() == [1, 2]
    assert lock.holder(folder) is None


def test_a_recorder_that_hangs_is_ended_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "HUNG_NS", 3 * 10**9)
    messages: list[str] = []
    with recording(tmp_path, messages) as all_:
        pid = recorder(tmp_path)
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: all_.tend() or len(messages) > 1)  # type: ignore[func-returns-value]
        wait_until(lambda: not all_.silence())
        assert recorder(tmp_path) != pid
    assert ["hung" in messages[0], "started again" in messages[1]] == [True, True]


def test_restarts_of_a_recorder_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "MOST_STARTS_AN_HOUR", 2)
    messages: list[str] = []
    with recording(tmp_path, messages) as all_:
        for _ in range(3):
            wait_until(lambda: not all_.silence())
            os.kill(recorder(tmp_path), signal.SIGKILL)
            wait_until(lambda: "not at work" in all_.silence())
            all_.tend()
        assert "not at work" in all_.silence()
    assert len(messages) == 2


def test_an_unplugged_meter_is_silent_until_it_is_back(tmp_path: Path) -> None:
    with contextlib.ExitStack() as plug:
        plug.enter_context(speaking(tmp_path / "m"))
        with Recorders([meter(tmp_path / "m")], tmp_path) as all_:
            assert all_.silence() == ""
            plug.close()
            wait_until(lambda: all_.silence() == "meter meter0 is silent")
            with speaking(tmp_path / "m"):
                wait_until(lambda: not all_.silence())


def _left_behind(tmp_path: Path) -> int:
    """Start a recorder and kill its controller; return the recorder's pid."""
    code = (
        "import json, sys, pathlib\nfrom contract.plan import MeterEntry\n"
        "from controller.session.recorders import Recorders\n"
        "with Recorders([MeterEntry(**json.loads(sys.argv[1]))], pathlib.Path(sys.argv[2])):\n"
        "    print('heard', flush=True); sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", code, json.dumps(asdict(meter(tmp_path / "m"))), str(tmp_path)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == "heard\n"
        controller.kill()
    return recorder(tmp_path)


def test_a_leftover_recorder_continues_and_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "meters" / "meter0"
    messages: list[str] = []
    with speaking(tmp_path / "m"):
        pid = _left_behind(tmp_path)
        size = (folder / "stream.raw").stat().st_size
        wait_until(lambda: (folder / "stream.raw").stat().st_size > size)
        with Recorders([meter(tmp_path / "m")], tmp_path, messages.append):
            assert lock.holder(folder) not in (pid, None)
    assert messages == ["ended what still recorded for an earlier session: meter0"]
    samples = decode(folder).samples
    assert samples["epoch"].unique().sort().to_list() == [1, 2]


def test_sealing_ends_leftover_recorders(tmp_path: Path) -> None:
    suite_folder(tmp_path, plan(), [])
    with speaking(tmp_path / "m"):
        _left_behind(tmp_path)
        sums = json.loads(seal.seal(tmp_path).read_text(encoding="utf-8"))["files"]
    assert end_leftovers(tmp_path) == []
    assert sums["meters/meter0/stream.raw"] == sha256_of(tmp_path / "meters/meter0/stream.raw")
    assert not (tmp_path / "status" / "meters").exists()


def test_each_boot_of_the_controller_has_a_separate_folder(tmp_path: Path) -> None:
    def record(folder: str, boot: str) -> None:
        (tmp_path / folder).mkdir()
        described = json.dumps({"controller_boot_id": boot})
        (tmp_path / folder / "meter.json").write_text(described, encoding="utf-8")

    assert folder_for("m", tmp_path).name == "m"
    record("m", "another")
    assert folder_for("m", tmp_path).name == "m.2"
    record("m.2", "a third")
    assert folder_for("m", tmp_path).name == "m.3"
    record("m.3", boot_id())
    assert folder_for("m", tmp_path).name == "m.3"
    meters = [meter(tmp_path / "m", name) for name in ("m", "m.2")]
    with refuses("meters-too-alike"), Recorders(meters, tmp_path):
        pass


def test_a_silent_meter_is_refused(tmp_path: Path) -> None:
    with (
        refuses("recorder-ended", meter="meter0"),
        Recorders([meter(tmp_path / "nothing")], tmp_path),
    ):
        pytest.fail("entered without a meter")
