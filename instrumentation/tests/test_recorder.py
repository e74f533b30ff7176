"""Test the recorder on pseudo-terminals with a simulator."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from contract.documents import MeterFault, RecorderStatus
from contract.plan import MeterEntry
from instrumentation import recorder
from instrumentation.decode import decode, write_samples
from instrumentation.meters.rows import ParseResult
from instrumentation.ports import Port
from instrumentation.recorder import Recorder
from instrumentation.recorder_port import RecorderError, driver_of, foreign_error, parse_meter
from instrumentation.recorder_status import Status
from instrumentation.simulators.play import SimulatedPort
from instrumentation.simulators.smartpower3 import SmartPower3Simulator
from instrumentation.tests.meter_helpers import Running, an_entry, read_status, wait_for_status
from instrumentation.trace import Fault
from validation.metrology.conversation import read_frames

SYSTEM_W, DRIVE_W = 20.0, 0.06
Send = Callable[[SimulatedPort], object]


def smartpower3() -> Send:
    """Return a sender of one meter's lines, which continue over several ports."""
    simulator = SmartPower3Simulator()

    def send(port: SimulatedPort) -> None:
        seconds = (simulator.t_ms + simulator.interval_ms) / 1000
        port.send(simulator.advance(np.array([[SYSTEM_W * seconds, DRIVE_W * seconds]])))

    return send


@contextlib.contextmanager
def plugged_in(link: Path, send: Send) -> Iterator[SimulatedPort]:
    """Provide a port at which `send` is called every 10 ms."""
    port = SimulatedPort(link)
    unplugged = threading.Event()

    def play() -> None:
        while not unplugged.wait(0.01):
            send(port)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield port
    finally:
        unplugged.set()
        thread.join()
        port.close()


def state_of(out: Path) -> str:
    status = read_status(out / "status.json")
    return status.state if status else ""


class Bench:
    """A recorder in a thread of this process; `ports` are the USB devices that it finds."""

    def __init__(
        self, port: object, out: Path, *, status: Path | None = None, wait: bool = False
    ) -> None:
        self.ports: list[Port] = []
        self.status_path = status or out / "status.json"
        self.results: list[str] = []
        self._ended = threading.Event()
        config = parse_meter(an_entry(port))
        self._recorder = Recorder(
            config, out, self.status_path, finder=lambda: self.ports, wait=wait
        )
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.results.append(self._recorder.run(self._ended.is_set))
        except RecorderError as error:
            self.results.append(str(error))

    def __enter__(self) -> Bench:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait_until(self, condition: Callable[[RecorderStatus], bool]) -> RecorderStatus:
        def check() -> None:
            assert self._thread.is_alive(), self.results

        return wait_for_status(self.status_path, condition, check)


Refused = Callable[..., str]


@pytest.fixture
def refused(out: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Return a function that runs the command line, which must fail, and returns its error."""

    def run(port: object, **changes: Any) -> str:
        arguments = ["--meter", an_entry(port, **changes), "--out", str(out)]
        assert recorder.main(arguments) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("fde: ") and captured.err.count("\n") == 1
        return captured.err

    return run


@pytest.fixture
def link(tmp_path: Path) -> Path:
    return tmp_path / "meter"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "meters" / "meter0"


def test_records_until_it_is_stopped(link: Path, out: Path) -> None:
    with plugged_in(link, smartpower3()):
        running = Running(an_entry(link), out)
        status = running.wait_until(lambda s: s.records > 100)
        running.process.send_signal(signal.SIGTERM)
        code, summary, err = running.end()
    assert (code, err) == (0, "")  # no live line where nobody looks
    assert status.watts == {"system": SYSTEM_W, "drive": DRIVE_W}
    assert status.rate_hz > 0
    assert state_of(out) == "stopped"
    described = json.loads((out / "meter.json").read_text())
    assert (described["kind"], described["origin"]) == ("smartpower3", "modelled")
    assert described["accuracy"]["source"]
    assert not write_samples(out).faults
    samples = pl.read_parquet(out / "samples.parquet")
    assert summary.startswith(f"meter0: {samples.height} records")
    assert summary.count("\n") == 1
    drive_j = (samples["power_w_drive"] * samples["window_s"]).sum()
    assert drive_j == pytest.approx(DRIVE_W * 0.01 * samples.height)
    assert (samples["t_device_us"].diff().drop_nulls() == 10_000).all()


def test_the_last_fault_is_written_with_its_kind_and_detail(link: Path, out: Path) -> None:
    out.mkdir(parents=True)
    status = Status(parse_meter(an_entry(link)), out / "status.json")
    driver = driver_of(parse_meter(an_entry(link)))
    rows = driver.feed(b"", 0).rows
    status.count_records(8, ParseResult(rows, (Fault(1, "gap", "a record is missing"),)))
    status.write()
    written = read_status(out / "status.json")
    assert written is not None
    assert (written.gaps, written.last_fault) == (1, MeterFault("gap", "a record is missing"))


def test_live_draws_a_line(link: Path, out: Path) -> None:
    with plugged_in(link, smartpower3()):
        running = Running(an_entry(link), out, "--live")
        running.wait_until(lambda s: s.records > 100)
        running.process.terminate()
        _, _, err = running.end()
    assert "system 20.00 W  drive 0.06 W" in err
    assert "/100 Hz | 0 gaps 0 faults" in err
    assert err.endswith("\x1b[K")


def test_an_unplugged_meter_is_reopened_under_another_number(link: Path, out: Path) -> None:
    send = smartpower3()
    with contextlib.ExitStack() as stack:
        with plugged_in(link, send) as first:
            bench = stack.enter_context(Bench(link, out))
            bench.wait_until(lambda s: s.records > 20)
        taken = stack.enter_context(plugged_in(link.with_name("other"), lambda _: None))
        lost = bench.wait_until(lambda s: s.state == "lost")
        assert lost.watts == {}  # unknown from here on
        second = stack.enter_context(plugged_in(link, send))
        assert len({first.device, second.device, taken.device}) >= 2
        status = bench.wait_until(lambda s: s.state == "recording")
        assert status.epoch == 2
        bench.wait_until(lambda s: s.records > status.records + 20)
    samples = decode(out).samples
    assert samples["epoch"].unique().sort().to_list() == [1, 2]
    assert samples["seq"].to_list() == list(range(samples.height))


def test_an_existing_stream_is_continued_with_equal_settings_only(
    link: Path, out: Path, refused: Refused
) -> None:
    with plugged_in(link, smartpower3()):
        for epoch in (1, 2):
            with Bench(link, out) as bench:
                status = bench.wait_until(lambda s: s.state == "recording")
            assert status.epoch == epoch
        described = (out / "meter.json").read_text()
        err = refused(link, settings={"interval_ms": 100})
    assert "was recorded with another settings" in err
    assert (out / "meter.json").read_text() == described
    assert decode(out).samples["epoch"].max() == 2


def test_a_full_disk_ends_with_whole_frames(link: Path, out: Path) -> None:
    with plugged_in(link, smartpower3()):
        running = Running(an_entry(link), out)
        running.wait_until(lambda s: s.records > 20)
        limit = (out / "stream.raw").stat().st_size + 1000  # in the middle of a frame, most likely
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        code, _, err = running.end()
    assert code == 1
    assert err.count("\n") == 1
    assert err.startswith("fde: meter0: the recording ended")
    assert state_of(out) == "failed"
    size = (out / "stream.raw").stat().st_size
    assert limit - 1000 <= size <= limit  # a busy machine writes several frames at once
    assert size == sum(12 + len(frame.data) for frame in read_frames(out / "stream.raw"))
    assert decode(out).samples.height > 20


@contextlib.contextmanager
def small_disk(at: Path, size_bytes: int) -> Iterator[None]:
    at.mkdir()
    options = f"size={size_bytes}"
    process = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(at)], capture_output=True, check=False
    )
    if process.returncode:
        pytest.skip(f"no disk can be mounted here: {process.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(at)], check=True)


def test_a_full_disk_pauses_the_recording(link: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, 4 << 20), plugged_in(link, smartpower3()):
        with Bench(link, disk / "meter0", status=tmp_path / "status.json") as bench:
            bench.wait_until(lambda s: s.records > 20)
            ballast = disk / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            full = bench.wait_until(lambda s: s.state == "full")
            assert "is full" in full.message
            assert full.watts == {}
            stream = disk / "meter0/stream.raw"
            assert stream.stat().st_size == sum(12 + len(f.data) for f in read_frames(stream))
            ballast.unlink()
            many = full.records + 20
            bench.wait_until(lambda s: s.state == "recording" and s.records > many)
        samples = decode(disk / "meter0").samples
    assert samples["epoch"].unique().sort().to_list() == [1, 2]
    assert samples["seq"].to_list() == list(range(samples.height))


def test_a_second_recorder_of_a_folder_is_refused(link: Path, out: Path, refused: Refused) -> None:
    """The lock belongs to the open folder, so one process suffices for the test."""
    with plugged_in(link, smartpower3()), Bench(link, out) as bench:
        bench.wait_until(lambda s: s.records > 0)
        assert "another process records into" in refused(link)


def test_with_wait_a_missing_meter_is_awaited(link: Path, out: Path) -> None:
    with Bench(link, out, wait=True) as bench:
        lost = bench.wait_until(lambda s: s.state == "lost")
        assert "cannot be opened" in lost.message
        with plugged_in(link, smartpower3()):
            bench.wait_until(lambda s: s.state == "recording")


def test_outlive_ends_the_recorder_after_its_parent(link: Path, out: Path) -> None:
    argv = [sys.executable, "-m", "instrumentation.recorder", "--outlive", "1", "--out", str(out)]
    argv += ["--meter", an_entry(link)]
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:]); sys.stdin.read()"
    with plugged_in(link, smartpower3()):
        with subprocess.Popen(
            [sys.executable, "-c", code, *argv], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as parent:
            before = wait_for_status(out / "status.json", lambda s: s.state == "recording")
            parent.kill()
        after = wait_for_status(out / "status.json", lambda s: s.state == "stopped")
    assert after.records > before.records + 20


def test_the_same_usb_device_is_reopened_under_another_number(tmp_path: Path, out: Path) -> None:
    send, links = smartpower3(), [tmp_path / f"tty{n}" for n in range(3)]
    mine, moved, other = (
        Port(str(at), "10c4:ea60", number, "1-2")
        for at, number in zip(links, ("A", "A", "B"), strict=True)
    )
    bench = Bench("usb", out)
    with contextlib.ExitStack() as plugs:
        with plugged_in(links[0], send):
            bench.ports[:] = [mine]
            plugs.enter_context(bench)
            bench.wait_until(lambda s: s.records > 20)
            bench.ports[:] = []
        bench.wait_until(lambda s: s.state == "lost")
        with plugged_in(links[2], send):
            bench.ports[:] = [other]  # of the same kind, and not the same
            lost = bench.wait_until(lambda s: "not plugged in" in s.message)
            with plugged_in(links[1], send):
                bench.ports[:] = [moved, other]
                status = bench.wait_until(lambda s: s.state == "recording")
                plugs.close()
    assert lost.epoch == 1
    assert status.epoch == 2
    assert bench.results[0].startswith("meter0: ")
    assert "opened 2 times" in bench.results[0]


@pytest.mark.parametrize("serial", ["", "0001", "FTAL9DXB"])
def test_a_continued_recording_refuses_another_adapter(
    tmp_path: Path, out: Path, serial: str
) -> None:
    identifies = len(serial) > 4
    first = Port(str(tmp_path / "tty"), "10c4:ea60", serial, "1-1")
    other = (
        replace(first, serial_number="FTAL8888") if identifies else replace(first, location="1-2")
    )
    back = replace(first, location="1-2") if identifies else first
    with plugged_in(tmp_path / "tty", smartpower3()):
        for port, named, is_taken in (
            (first, "usb", True),
            (other, "usb", False),
            (back, "usb", True),
            (other, "usb:10c4:ea60", True),  # another port in the inventory
            (first, "usb:10c4:ea60", False),
        ):
            bench = Bench(named, out)
            bench.ports[:] = [port]
            with bench:
                while bench._thread.is_alive():
                    status = read_status(bench.status_path)
                    if status is not None and status.state == "recording" and status.records:
                        break
                    time.sleep(0.02)
            refused = ("plugged in" in bench.results[0], "may be another" in bench.results[0])
            assert any(refused) != is_taken, bench.results
            bench.status_path.unlink()


@pytest.mark.parametrize(
    ("port", "data", "reason", "code"),
    [
        ("/dev/ttyUSB0", b"P= 12 W\r\n", "a line that the pattern does not fit", "no-readings"),
        (
            "/dev/ttyUSB0",
            b"\x88\xef\xb1\n",
            "a line that the pattern does not fit",
            "foreign-records",
        ),
        ("/dev/ttyUSB0", b"P= 12 W\r\n", "", "foreign-records"),
        ("http://plug", b"@2 0 200 OK\n{}\n", "", "no-readings"),
    ],
)
def test_a_stream_that_can_be_read_is_refused_with_its_drivers_reason(
    port: str, data: bytes, reason: str, code: str
) -> None:
    entry = MeterEntry("m", "line", port, "measured", {"0": "system"}, 9600)
    assert foreign_error(entry, data, "", reason).code == code


def test_a_foreign_stream_is_refused_with_its_bytes(link: Path, refused: Refused) -> None:
    with plugged_in(link, lambda port: port.send(b"$GPGGA,123519,4807.038,N\r\n")):
        err = refused(link)
    assert "sends no records of a smartpower3" in err
    assert "GPGGA" in err


def test_another_meters_stream_is_refused_with_its_kind(link: Path, refused: Refused) -> None:
    with plugged_in(link, smartpower3()):
        err = refused(link, kind="mcp39f511n", channels={"1": "system"})
    assert "That is a smartpower3: set its kind." in err


def test_pseudo_terminal_is_never_measured(link: Path, out: Path, refused: Refused) -> None:
    with plugged_in(link, smartpower3()) as port:
        for name in (link, port.device):
            assert "pseudo-terminal" in refused(name, origin="measured")
    assert not out.exists()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"kind": "smartpower"}, "did you mean smartpower3"),
        ({"origin": "guessed"}, "origin"),
        ({"channels": {"7": "system"}}, "no channel 7"),
        ({"name": "../meter0"}, "name is '../meter0'"),
        ({"port": "usb:10c4"}, "names no port"),
        ({"settings": {"interval_ms": 7}}, "interval_ms"),
        ({"baud": "fast"}, "baud"),
    ],
)
def test_wrong_entry_is_refused(
    link: Path, out: Path, entry: dict[str, Any], message: str, refused: Refused
) -> None:
    assert message in refused(**{"port": link, **entry})
    assert not out.exists()
