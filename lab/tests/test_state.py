"""The lab's record of its processes: it finds all of its own and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contract.files import write_json
from contract.interrupts import deferred_interrupts
from contract.tests.refusal import refuses
from lab import lifecycle
from lab.launcher import Launcher
from lab.state import Layout, Process, Started, read_started, write_started

pytestmark = pytest.mark.usefixtures("interruptible")
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True);"
    "time.sleep(600)",
]


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    yield Layout(tmp_path)
    lifecycle.down(Layout(tmp_path))


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_is_alive_until_it_ends_even_as_a_zombie() -> None:
    child = subprocess.Popen(SLEEPER)
    process = Process.from_pid("sleeper", child.pid)
    assert process.alive()
    child.kill()
    _until(lambda: not process.alive())  # nobody has waited for it: it is a zombie now
    assert Path(f"/proc/{child.pid}").exists()
    child.wait()
    assert not process.alive()


def test_a_reused_pid_is_another_process() -> None:
    process = Process.from_pid("tests", os.getpid())
    assert process.alive()
    assert process.start_ticks > 0
    assert not replace(process, start_ticks=process.start_ticks + 1).alive()
    assert not replace(process, boot_id="another").alive()


def test_a_name_with_brackets_and_blanks_is_read(tmp_path: Path) -> None:
    program = tmp_path / "a) b (c"
    program.symlink_to(sys.executable)
    child = subprocess.Popen([program, *SLEEPER[1:]])
    process = Process.from_pid("odd", child.pid)
    assert process.alive()
    child.kill()
    _until(lambda: not process.alive())
    child.wait()


def test_down_does_not_kill_a_reused_pid(layout: Layout) -> None:
    stranger = subprocess.Popen(SLEEPER)
    try:
        process = Process.from_pid("qemu", stranger.pid)
        stale = replace(process, start_ticks=process.start_ticks - 1)
        write_started(layout, Started(None, (stale,)))
        assert lifecycle.down(layout) == []
        assert stranger.poll() is None
        assert not layout.processes.exists()
    finally:
        stranger.kill()
        stranger.wait()


def test_down_kills_a_process_that_ignores_sigterm(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STOP_LIMIT_S", 0.2)
    launcher = Launcher(layout)
    good = launcher.start("drive-plain", SLEEPER)
    deaf = launcher.start("meter", STUBBORN)
    _until(lambda: b"deaf" in (layout.directory / "meter.log").read_bytes())
    assert lifecycle.down(layout) == ["drive-plain", "meter"]
    assert good.wait() == -signal.SIGTERM
    assert deaf.wait() == -signal.SIGKILL
    assert not launcher.sockets.exists()
    assert lifecycle.down(layout) == []


def test_a_process_whose_first_thread_ended_is_alive(layout: Layout) -> None:
    ended = "ctypes.CDLL(None).syscall(60, 0)"  # exit(2), of this thread only
    program = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,))"
    child = Launcher(layout).start("guest", [sys.executable, "-c", f"{program}.start(); {ended}"])
    (process,) = read_started(layout).processes
    state = Path(f"/proc/{child.pid}/status")
    _until(lambda: "zombie" in state.read_text(encoding="utf-8"))
    assert process.alive()
    child.kill()
    _until(lambda: not process.alive())
    assert child.wait() == -signal.SIGKILL


def test_all_labs_below_a_directory_are_stopped(layout: Layout) -> None:
    places = [layout.directory, layout.directory / "first", layout.directory / "second"]
    started = []
    for place in places:
        place.mkdir(exist_ok=True)
        started.append(Launcher(Layout(place)).start(f"guest-{place.name}", SLEEPER))
    stopped = lifecycle.down_all(layout.directory)
    for process in started:
        process.kill()  # what it has left
    assert stopped == [f"guest-{place.name}" for place in places]
    assert [process.wait() for process in started] == 3 * [-signal.SIGTERM]


def test_a_lab_is_up_if_ready_and_all_processes_run(layout: Layout) -> None:
    launcher = Launcher(layout)
    launcher.start("qemu", SLEEPER)
    meter = launcher.start("meter", SLEEPER)
    assert not lifecycle.running(layout)
    write_json(layout.state, {"ready": False})
    assert not lifecycle.running(layout)
    write_json(layout.state, {"ready": True})
    assert lifecycle.running(layout)
    meter.kill()
    meter.wait()
    assert not lifecycle.running(layout)


def test_a_process_that_ends_before_ready_is_refused_with_its_log(layout: Layout) -> None:
    dying = [sys.executable, "-c", "raise SystemExit('port taken')"]
    with refuses("not-started", how="exit status 1", log="port taken"):
        Launcher(layout).start_ready("drive-plain", dying)


def test_a_process_that_is_not_ready_in_time_is_refused(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.launcher.READY_LIMIT_S", 0.0)
    with refuses("not-started", name="drive-plain", how="not within 0 s"):
        Launcher(layout).start_ready("drive-plain", SLEEPER)


def test_an_earlier_ready_file_does_not_count(layout: Layout) -> None:
    write_json(layout.directory / "drive-plain.ready", {"port": 1})
    with refuses("not-started"):
        Launcher(layout).start_ready("drive-plain", [sys.executable, "-c", ""])


def test_an_interrupt_is_deferred_to_the_end_of_the_block() -> None:
    before = signal.getsignal(signal.SIGINT)
    reached = False
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        reached = True
    assert reached
    assert signal.getsignal(signal.SIGINT) is before


def test_started_processes_are_read_back(layout: Layout) -> None:
    started = Started("/tmp/x", (Process("qemu", 12, 34, "boot"),))
    write_started(layout, started)
    assert read_started(layout) == started
    layout.processes.write_text('{"sockets": "/tm')  # torn
    assert read_started(layout) == Started(None, ())
