"""The lab's meter with a process in place of QEMU, read by the real recorder."""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from instrumentation.decode import decode
from instrumentation.tests.meter_helpers import Running, an_entry
from lab.host_time import HostPage
from lab.meter import Integral, main
from lab.power_model import Activity, DriveActivity, DrivePower, PowerModel

# A process with two threads that work in bursts, as virtual CPUs do.
BURSTS = """
import threading, time
def work(pause):
    while True:
        end = time.monotonic() + 0.25
        while time.monotonic() < end:
            pass
        time.sleep(pause)
threads = [threading.Thread(target=work, args=(p,), daemon=True) for p in (0.25, 0.75)]
for thread in threads:
    thread.start()
print(*[thread.native_id for thread in threads], flush=True)
time.sleep(600)
"""


TRUTH_PERIOD_S = 0.5


class Drive:
    """Counters of a drive in a file, as the drive process writes them."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(72))
        self.path = path
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 72)

    def set(self, *values: int) -> None:
        self._map[: 8 * len(values)] = struct.pack(f"<{len(values)}Q", *values)


@dataclass
class Lab:
    """A simulated lab and its meter."""

    directory: Path
    qemu: subprocess.Popen[str]
    tids: list[int]
    drives: dict[str, Drive]
    meters: list[subprocess.Popen[str]] = field(default_factory=list)

    def cut(self) -> None:
        self.qemu.kill()
        self.qemu.wait()
        self.write_state(guest={"pid": None})

    def switch_on(self) -> None:
        self.qemu, self.tids = bursts()
        self.write_state()

    def write_state(self, **changes: Any) -> None:
        state = {
            "guest": {"pid": self.qemu.pid, "vcpu_tids": self.tids},
            "drives": {
                name: {"stats": str(drive.path), "pid": os.getpid()}
                for name, drive in self.drives.items()
            },
            "host_page": str(self.directory / "host-page"),
        } | changes
        (self.directory / "state.json").write_text(json.dumps(state))

    def start_meter(self) -> subprocess.Popen[str]:
        paths = {"state": "state.json", "link": "meter", "ready-file": "r", "truth": "truth"}
        options = [f"--{name}={self.directory / path}" for name, path in paths.items()]
        options.append(f"--truth-period={TRUTH_PERIOD_S}")
        meter = subprocess.Popen(
            [sys.executable, "-m", "lab.meter", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.meters.append(meter)
        while not (self.directory / "r").exists() and meter.poll() is None:
            time.sleep(0.02)
        return meter

    def stop(self, meter: subprocess.Popen[str]) -> str:
        """Stop a meter; return its output."""
        meter.terminate()
        out, _ = meter.communicate(timeout=60)
        assert meter.returncode == 0
        return out

    def wait_for_lines(self, count: int) -> None:
        """Wait until the truth has `count` lines."""
        while len(self.truth()) < count:
            time.sleep(0.02)

    def start_recorder(self) -> Running:
        return Running(an_entry(self.directory / "meter"), self.directory / "out")

    def truth(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in (self.directory / "truth").read_text().splitlines()]


def bursts() -> tuple[subprocess.Popen[str], list[int]]:
    """Return a process that simulates QEMU, and the ids of its virtual CPUs."""
    qemu = subprocess.Popen([sys.executable, "-c", BURSTS], stdout=subprocess.PIPE, text=True)
    assert qemu.stdout is not None
    return qemu, [int(tid) for tid in qemu.stdout.readline().split()]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    drives = {name: Drive(tmp_path / f"{name}.stats") for name in ("plain", "sed")}
    HostPage.create(tmp_path / "host-page")
    lab = Lab(tmp_path, *bursts(), drives)
    lab.write_state()
    yield lab
    for process in (lab.qemu, *lab.meters):
        process.kill()
        process.communicate()


def energy_between(
    samples: pl.DataFrame, channel: str, start_ms: float, end_ms: float
) -> tuple[float, float]:
    """Energy (J) of one channel in a stretch of the meter's own time, and its largest error.

    The sum is exact but for the two windows that are cut, within which the course is unknown.
    """
    end = pl.col("t_device_us") / 1000
    start = end - pl.col("window_s") * 1000
    first = pl.max_horizontal(start, pl.lit(start_ms))
    last = pl.min_horizontal(end, pl.lit(end_ms))
    power_w = pl.col(f"power_w_{channel}")
    energy_j = (power_w * (last - first).clip(0) / 1000).sum()
    cut = (start < start_ms) & (start_ms < end) | (start < end_ms) & (end_ms < end)
    error_j = (power_w * pl.col("window_s")).filter(cut).sum()
    got_j, off_j = samples.select(energy_j.alias("energy"), error_j.alias("error")).row(0)
    return float(got_j), float(off_j)


def test_recorded_energy_equals_the_truth(lab: Lab) -> None:
    meter = lab.start_meter()
    recorder = lab.start_recorder()
    moved = 0
    recorder.wait_until(lambda status: status.records > 0)
    first = len(lab.truth())  # the first that lies within the recording
    while len(lab.truth()) < first + 7:  # one more than is looked at: what was sent is read by then
        moved += 40_000_000
        lab.drives["plain"].set(moved, moved // 2, 0, 0)
        lab.drives["sed"].set(moved // 3, moved, moved, moved // 3)
        time.sleep(0.02)
        if len(lab.truth()) == first + 3:  # as on a machine that has no time for the meter
            meter.send_signal(signal.SIGSTOP)
            time.sleep(0.3)
            meter.send_signal(signal.SIGCONT)
    recorder.process.terminate()
    assert recorder.end()[0] == 0
    lab.stop(meter)

    decoded = decode(lab.directory / "out")
    assert not decoded.faults
    truth = lab.truth()
    begin, end = truth[first], truth[first + 5]
    for channel in ("system", "drive"):
        true_j = end[f"{channel}_j"] - begin[f"{channel}_j"]
        got_j, off_j = energy_between(
            decoded.samples, channel, begin["t_device_ms"], end["t_device_ms"]
        )
        assert off_j < 0.1 * true_j
        assert abs(got_j - true_j) <= off_j + 1e-5  # the last digit of the lines at the edges
    # The truth itself, against the counters: all bytes counted, and work on top of idling.
    model, all_of_it = PowerModel.load(), truth[-1]
    drive = model.media["drive"]
    seconds = all_of_it["t_device_ms"] / 1000 - all_of_it["stolen_s"]
    bytes_j = (
        (moved + moved // 3) * drive.j_per_byte_read
        + (moved // 2 + moved) * drive.j_per_byte_written
        + (moved + moved // 3) * drive.j_per_byte_crypt
    )
    assert all_of_it["drive_j"] == pytest.approx(2 * drive.idle_w * seconds + bytes_j)
    assert all_of_it["system_j"] > model.system_idle_w * seconds + all_of_it["drive_j"] + 1


def test_energy_between_two_readings_is_interpolated() -> None:
    model = PowerModel(10.0, 0.0, {"drive": DrivePower(0.0, 2.0)})
    integral = Integral(model, ["drive"], 5_000_000_000, Activity(0, (DriveActivity(),)))
    integral.look(6_000_000_000, Activity(0, (DriveActivity(bytes_read=50),)))
    integral.look(8_000_000_000, Activity(0, (DriveActivity(bytes_read=60),)))
    assert integral.energy_j == (150.0, 120.0)
    assert integral.at(6_000_000_000) == (110.0, 100.0)
    assert integral.at(6_500_000_000) == (120.0, 105.0)
    assert integral.at(8_000_000_000) == integral.energy_j


def test_stolen_time_stops_the_modelled_machine(lab: Lab) -> None:
    """Two virtual CPUs share one processor with two other processes: half is stolen."""
    processor = min(os.sched_getaffinity(0))
    burn = f"import os\nos.sched_setaffinity(0, [{processor}])\nwhile True: pass"
    for tid in lab.tids:
        os.sched_setaffinity(tid, [processor])
    others = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(2)]
    try:
        meter = lab.start_meter()
        lab.wait_for_lines(6)
        lab.stop(meter)
    finally:
        for other in others:
            other.kill()
            other.wait()
    last, model = lab.truth()[-1], PowerModel.load()
    wall_s, stolen_s = last["t_device_ms"] / 1000, last["stolen_s"]
    assert 0.1 * wall_s < stolen_s < wall_s
    # The page tells the guest the same: of its CPUs together, and of the machine.
    page = (lab.directory / "host-page").read_bytes()
    of_cpus_ns, of_machine_ns = struct.unpack("<2Q", page[8:24])
    assert of_machine_ns / 1e9 == pytest.approx(stolen_s, abs=0.02)
    assert of_machine_ns > of_cpus_ns / 2  # and it was kept waiting for a drive
    busy_j = last["system_j"] - last["drive_j"] - model.system_idle_w * (wall_s - stolen_s)
    assert 0 < busy_j / model.system_busy_w_per_cpu < wall_s - stolen_s


def test_cpu_time_is_that_of_the_threads(lab: Lab) -> None:
    def cpu_s() -> float:
        stats = [Path(f"/proc/{lab.qemu.pid}/task/{tid}/schedstat").read_text() for tid in lab.tids]
        return sum(int(stat.split()[0]) for stat in stats) / 1e9

    before_start = cpu_s()
    meter = lab.start_meter()
    after_start = cpu_s()
    lab.wait_for_lines(4)
    before_end = cpu_s()
    lines = len(lab.truth())
    lab.wait_for_lines(lines + 1)  # so that the meter has read since
    lab.stop(meter)
    after_end = cpu_s()
    last, model = lab.truth()[-1], PowerModel.load()
    awake_s = last["t_device_ms"] / 1000 - last["stolen_s"]
    idle_j = model.system_idle_w * awake_s + last["drive_j"]
    busy_s = (last["system_j"] - idle_j) / model.system_busy_w_per_cpu
    assert before_end - after_start <= busy_s <= after_end - before_start


def test_the_meter_shows_no_power_during_a_power_cut(lab: Lab) -> None:
    meter = lab.start_meter()
    lab.wait_for_lines(2)
    lab.cut()
    lines = len(lab.truth())
    lab.wait_for_lines(lines + 3)
    before, after = lab.truth()[-2:]
    assert before["system_j"] == after["system_j"]
    assert before["drive_j"] == after["drive_j"]
    lab.switch_on()
    idle_w = PowerModel.load().system_idle_w
    lines = len(lab.truth())
    lab.wait_for_lines(lines + 4)
    before, after = lab.truth()[-2:]
    awake_s = (after["t_mono_ns"] - before["t_mono_ns"]) / 1e9
    idle_j = idle_w * (awake_s - after["stolen_s"] + before["stolen_s"])
    assert after["system_j"] - before["system_j"] > idle_j
    lab.stop(meter)
    assert not (lab.directory / "meter").is_symlink()


def test_the_meters_time_continues_while_unplugged(lab: Lab) -> None:
    meter, recorder = lab.start_meter(), lab.start_recorder()
    recorder.wait_until(lambda status: status.state == "recording")
    meter.send_signal(signal.SIGUSR1)
    lost = recorder.wait_until(lambda status: status.state == "lost")
    assert not (lab.directory / "meter").is_symlink()
    lines = len(lab.truth())
    lab.wait_for_lines(lines + 2)
    meter.send_signal(signal.SIGUSR2)
    recorder.wait_until(lambda s: s.state == "recording" and s.records > lost.records)
    recorder.process.terminate()
    assert recorder.end()[0] == 0
    lab.stop(meter)
    samples = decode(lab.directory / "out").samples
    assert samples["epoch"].n_unique() == 2
    step_us = samples["t_device_us"].diff().max()
    assert isinstance(step_us, int)
    assert step_us > 0.9e6 * TRUTH_PERIOD_S


def test_lines_without_a_reader_are_dropped(lab: Lab) -> None:
    meter = lab.start_meter()
    lab.wait_for_lines(2)
    stale = lab.truth()[-1]["t_device_ms"]
    recorder = lab.start_recorder()
    recorder.wait_until(lambda status: status.records > 0)
    recorder.process.terminate()
    recorder.end()
    dropped = int(lab.stop(meter).split(", ")[1].split()[0])
    assert dropped >= stale / 10 - 1
    first_us = decode(lab.directory / "out").samples["t_device_us"].min()
    assert isinstance(first_us, int)
    assert first_us > stale * 1000


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (None, "cannot be read"),
        ("[]", "is not a lab's state"),
        ('{"guest": {"pid": 1}}', "incomplete"),
        (
            '{"guest": {"pid": 1, "vcpu_tids": [4194304]}, "drives": {}, "host_page": "/none"}',
            "is not running",
        ),
    ],
)
def test_the_meter_refuses_a_missing_lab(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str | None, reason: str
) -> None:
    if state is not None:
        (tmp_path / "state.json").write_text(state)
    paths = {"state": "state.json", "link": "meter", "ready-file": "ready"}
    code = main([f"--{name}={tmp_path / path}" for name, path in paths.items()])
    error = capsys.readouterr().err
    assert code == 1 and error.startswith("fde: ")
    assert reason in error
    assert not os.path.lexists(tmp_path / "meter")
    assert not (tmp_path / "ready").exists()
