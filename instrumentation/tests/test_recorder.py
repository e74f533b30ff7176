"""The recorder as a process of its own, on pseudo-terminals that a simulator talks to."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from instrumentation.decode import DecodeError, decode, main, write_samples
from instrumentation.ports import Port
from instrumentation.recorder import Recorder
from instrumentation.recorder_port import MeterConfig, RecorderError
from instrumentation.simulators.play import SimulatedPort
from instrumentation.simulators.smartpower3 import SmartPower3Simulator
from instrumentation.trace import read_frames

SYSTEM_W, DRIVE_W = 20.0, 0.06
Send = Callable[[SimulatedPort], object]


def smartpower3() -> Send:
    """Lines of one meter that continues over several ports."""
    simulator = SmartPower3Simulator()

    def send(port: SimulatedPort) -> None:
        seconds = (simulator.t_ms + simulator.interval_ms) / 1000
        port.send(simulator.advance(np.array([[SYSTEM_W * seconds, DRIVE_W * seconds]])))

    return send


@contextlib.contextmanager
def plugged_in(link: Path, send: Send) -> Iterator[SimulatedPort]:
    """A port at which something comes every 10 ms."""
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


class Running:
    """A recorder process and what it tells."""

    def __init__(self, link: Path, out: Path, *options: str, **entry: Any) -> None:
        meter = {
            "name": "meter0",
            "kind": "smartpower3",
            "port": str(link),
            "origin": "modelled",
            "channels": {"0": "system", "1": "drive"},
        } | entry
        self.out = out
        self.told = out / "status.json"
        command = [sys.executable, "-m", "instrumentation.recorder", "--meter", json.dumps(meter)]
        self.process = subprocess.Popen(
            [*command, "--out", str(out), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def status(self) -> dict[str, Any]:
        try:
            told = json.loads(self.told.read_text())
        except FileNotFoundError:
            return {"state": None, "records": 0, "epoch": 0}
        assert isinstance(told, dict)
        return told

    def wait_until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not wanted(status := self.status()):
            if self.process.poll() is not None:
                raise AssertionError(f"it ended: {self.process.communicate()}")
            time.sleep(0.05)
        return status

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def link(tmp_path: Path) -> Path:
    return tmp_path / "meter"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "meters" / "meter0"


def test_records_until_told_to_stop(link: Path, out: Path) -> None:
    with plugged_in(link, smartpower3()):
        running = Running(link, out)
        status = running.wait_until(lambda s: s["records"] > 100)
        running.process.send_signal(signal.SIGTERM)
        code, said, err = running.end()
    assert (code, err) == (0, "")
    assert status["watts"] == {"system": SYSTEM_W, "drive": DRIVE_W}
    assert status["rate_hz"] > 0
    assert running.status()["state"] == "stopped"
    described = json.loads((out / "meter.json").read_text())
    assert (described["kind"], described["origin"]) == ("smartpower3", "modelled")
    assert described["accuracy"]["source"]
    assert not write_samples(out).faults
    samples = pl.read_parquet(out / "samples.parquet")
    assert f"{samples.height} records" in said
    assert said.count("\n") == 1
    drive_j = (samples["power_w_drive"] * samples["window_s"]).sum()
    assert drive_j == pytest.approx(DRIVE_W * 0.01 * samples.height)
    assert (samples["t_device_us"].diff().drop_nulls() == 10_000).all()


def test_survives_unplugging_and_another_port_number(link: Path, out: Path) -> None:
    send = smartpower3()
    with plugged_in(link, send) as first:
        running = Running(link, out)
        running.wait_until(lambda s: s["records"] > 20)
    with plugged_in(link.with_name("other"), lambda _: None) as taken:
        lost = running.wait_until(lambda s: s["state"] == "lost")
        assert lost["watts"] == {}  # nobody knows them now
        with plugged_in(link, send) as second:
            assert len({first.device, second.device, taken.device}) >= 2
            status = running.wait_until(lambda s: s["state"] == "recording")
            assert status["epoch"] == 2
            many = status["records"] + 20
            running.wait_until(lambda s: s["records"] > many)
            running.process.terminate()
            assert running.end()[0] == 0
    samples = decode(out).samples
    assert samples["epoch"].unique().sort().to_list() == [1, 2]
    assert samples["seq"].to_list() == list(range(samples.height))


def test_goes_on_in_an_existing_stream(link: Path, out: Path) -> None:
    with plugged_in(link, smartpower3()):
        for epoch in (1, 2):
            running = Running(link, out)
            status = running.wait_until(lambda s: s["state"] == "recording")
            running.process.terminate()
            running.end()
            assert status["epoch"] == epoch
    assert decode(out).samples["epoch"].max() == 2


def test_full_disk_keeps_all_that_came(link: Path, out: Path) -> None:
    with plugged_in(link, smartpower3()):
        running = Running(link, out)
        running.wait_until(lambda s: s["records"] > 20)
        limit = (out / "stream.raw").stat().st_size + 1000  # in the middle of a frame, most likely
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        code, _, err = running.end()
    assert code == 1
    assert err.count("\n") == 1
    assert err.startswith("fde: meter0: the recording ended")
    assert running.status()["state"] == "failed"
    size = (out / "stream.raw").stat().st_size
    assert limit - 200 < size <= limit
    assert size == sum(12 + len(frame.data) for frame in read_frames(out / "stream.raw"))
    assert decode(out).samples.height > 20


@contextlib.contextmanager
def small_disk(at: Path, size_bytes: int) -> Iterator[None]:
    at.mkdir()
    options = f"size={size_bytes}"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(at)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no disk can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(at)], check=True)


def test_a_full_disk_is_waited_for_and_leaves_a_hole(link: Path, tmp_path: Path) -> None:
    disk, status = tmp_path / "disk", tmp_path / "status.json"
    with small_disk(disk, 4 << 20), plugged_in(link, smartpower3()):
        running = Running(link, disk / "meter0", "--status", str(status))
        running.told = status
        running.wait_until(lambda s: s["records"] > 20)
        ballast = disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        full = running.wait_until(lambda s: s["state"] == "full")
        assert "is full" in full["message"]
        assert full["watts"] == {}
        stream = disk / "meter0/stream.raw"
        assert stream.stat().st_size == sum(12 + len(f.data) for f in read_frames(stream))
        ballast.unlink()
        many = full["records"] + 20
        running.wait_until(lambda s: s["state"] == "recording" and s["records"] > many)
        running.process.terminate()
        code, _, err = running.end()
        assert (code, err) == (0, "")
        samples = decode(disk / "meter0").samples
    assert samples["epoch"].unique().sort().to_list() == [1, 2]
    assert samples["seq"].to_list() == list(range(samples.height))


def test_two_recorders_never_write_one_folder(link: Path, out: Path) -> None:
    with plugged_in(link, smartpower3()):
        running = Running(link, out)
        running.wait_until(lambda s: s["records"] > 0)
        second = Running(link, out, "--status", str(out.with_name("second.json")))
        code, _, err = second.end()
        running.process.terminate()
        assert running.end()[0] == 0
    assert code == 1
    assert "another process records into" in err


def test_a_meter_that_was_heard_before_is_waited_for(link: Path, out: Path) -> None:
    running = Running(link, out, "--wait")
    lost = running.wait_until(lambda s: s["state"] == "lost")
    assert "cannot be opened" in lost["message"]
    with plugged_in(link, smartpower3()):
        running.wait_until(lambda s: s["state"] == "recording")
        running.process.terminate()
        assert running.end()[0] == 0


def test_it_outlives_a_killed_parent_only_so_long(link: Path, out: Path) -> None:
    meter = {"name": "meter0", "kind": "smartpower3", "port": str(link), "origin": "modelled"}
    argv = [sys.executable, "-m", "instrumentation.recorder", "--outlive", "1", "--out", str(out)]
    argv += ["--meter", json.dumps(meter | {"channels": {"0": "system"}})]
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:]); sys.stdin.read()"
    with plugged_in(link, smartpower3()):
        with subprocess.Popen(
            [sys.executable, "-c", code, *argv], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as parent:
            before = _until(out, lambda s: s["state"] == "recording")
            parent.kill()
        after = _until(out, lambda s: s["records"] > before["records"] + 20)
        assert after["state"] == "recording"
        _until(out, lambda s: s["state"] == "stopped")


def _until(out: Path, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    while True:
        with contextlib.suppress(FileNotFoundError):
            status: dict[str, Any] = json.loads((out / "status.json").read_text())
            if wanted(status):
                return status
        time.sleep(0.02)


def test_live_line_is_drawn_only_where_it_is_wanted(link: Path, out: Path) -> None:
    for options, drawn in ((("--live",), True), ((), False)):
        with plugged_in(link, smartpower3()):
            running = Running(link, out.with_name(f"drawn-{drawn}"), *options)
            running.wait_until(lambda s: s["records"] > 100)
            running.process.terminate()
            _, said, err = running.end()
        assert ("\x1b[K" in err) == drawn
        if drawn:
            assert "system 20.00 W  drive 0.06 W" in err
            assert "/100 Hz | 0 gaps 0 faults" in err
            assert err.endswith("\x1b[K")
        else:
            assert err == ""
        assert said.startswith("meter0: ")


def test_a_stream_goes_on_only_as_it_began(link: Path, out: Path) -> None:
    with plugged_in(link, smartpower3()):
        running = Running(link, out)
        running.wait_until(lambda s: s["state"] == "recording")
        running.process.terminate()
        running.end()
        described = (out / "meter.json").read_text()
        code, _, err = Running(link, out, settings={"interval_ms": 100}).end()
    assert code == 1
    assert "was recorded with another settings" in err
    assert (out / "meter.json").read_text() == described


class Bench:
    """A recorder in this process, with USB devices that are told to it."""

    def __init__(self, out: Path, port: str) -> None:
        self.ports: list[Port] = []
        entry = {"name": "meter0", "kind": "smartpower3", "port": port, "origin": "modelled"}
        config = MeterConfig.from_json(json.dumps(entry | {"channels": {"0": "system"}}))
        self.ended = threading.Event()
        self.status_path = out / "status.json"
        self.said: list[str] = []
        self._recorder = Recorder(config, out, self.status_path, finder=lambda: self.ports)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.said.append(self._recorder.run(self.ended.is_set))
        except RecorderError as error:
            self.said.append(str(error))

    def __enter__(self) -> Bench:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._thread.join()

    def wait_until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            assert self._thread.is_alive(), self.said
            with contextlib.suppress(FileNotFoundError):
                status: dict[str, Any] = json.loads(self.status_path.read_text())
                if wanted(status):
                    return status
            time.sleep(0.02)


def test_the_same_usb_device_is_found_under_another_number(tmp_path: Path, out: Path) -> None:
    send, links = smartpower3(), [tmp_path / f"tty{n}" for n in range(3)]
    mine, moved, other = (
        Port(str(at), "10c4:ea60", number, "1-2")
        for at, number in zip(links, ("A", "A", "B"), strict=True)
    )
    bench = Bench(out, "usb")
    with contextlib.ExitStack() as plugs:
        with plugged_in(links[0], send):
            bench.ports[:] = [mine]
            plugs.enter_context(bench)
            bench.wait_until(lambda s: s["records"] > 20)
            bench.ports[:] = []
        bench.wait_until(lambda s: s["state"] == "lost")
        with plugged_in(links[2], send):
            bench.ports[:] = [other]  # of the same kind, and not the same
            lost = bench.wait_until(lambda s: "not plugged in" in s["message"])
            with plugged_in(links[1], send):
                bench.ports[:] = [moved, other]
                status = bench.wait_until(lambda s: s["state"] == "recording")
                plugs.close()
    assert lost["epoch"] == 1
    assert status["epoch"] == 2
    assert bench.said[0].startswith("meter0: ")
    assert "opened 2 times" in bench.said[0]


def test_two_alike_are_refused_with_their_names(out: Path) -> None:
    bench = Bench(out, "usb")
    bench.ports += [Port(f"/dev/ttyUSB{n}", "10c4:ea60", f"SN{n}", f"1-{n}") for n in "12"]
    with bench:
        bench._thread.join()
    assert "2 devices fit (/dev/ttyUSB1: serial number SN1, location 1-1" in bench.said[0]


def test_silent_meter_is_said(link: Path, out: Path) -> None:
    with plugged_in(link, lambda _: None):
        code, _, err = Running(link, out).end()
    assert code == 1
    assert "is silent" in err
    assert str(link) in err
    assert "ther ports here (none was opened):" in err


def test_foreign_stream_is_shown(link: Path, out: Path) -> None:
    with plugged_in(link, lambda port: port.send(b"$GPGGA,123519,4807.038,N\r\n")):
        code, _, err = Running(link, out).end()
    assert code == 1
    assert "sends no records of a smartpower3" in err
    assert "GPGGA" in err


def test_another_meter_is_named(link: Path, out: Path) -> None:
    with plugged_in(link, smartpower3()):
        code, _, err = Running(link, out, kind="wattsup", channels={"0": "system"}).end()
    assert code == 1
    assert "That is a smartpower3: set its kind." in err


def test_missing_port_is_said(link: Path, out: Path) -> None:
    code, _, err = Running(link, out).end()
    assert code == 1
    assert err.startswith(f"fde: meter0: {link} is not there")
    assert "Ports here (none was opened):" in err


def test_port_in_use_is_said(link: Path, out: Path, tmp_path: Path) -> None:
    with plugged_in(link, smartpower3()):
        first = Running(link, tmp_path / "first")
        first.wait_until(lambda s: s["records"] > 0)
        code, _, err = Running(link, out).end()
        first.process.terminate()
        assert first.end()[0] == 0
    assert code == 1
    assert "in use by another program" in err


def test_pseudo_terminal_is_never_measured(link: Path, out: Path) -> None:
    with plugged_in(link, smartpower3()) as port:
        for name in (link, Path(port.device)):
            code, _, err = Running(name, out, origin="measured").end()
            assert code == 1
            assert "pseudo-terminal" in err
    assert not out.exists()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"kind": "smartpower"}, "did you mean smartpower3"),
        ({"origin": "guessed"}, "measured or modelled"),
        ({"channels": {"7": "system"}}, "no channel 7"),
        ({"name": "../meter0"}, "cannot name a meter"),
        ({"port": "usb:10c4"}, "names no port"),
        ({"settings": {"interval_ms": 7}}, "interval_ms is one of"),
        ({"baud": "fast"}, "not a valid baud rate"),
    ],
)
def test_wrong_entry_is_refused(link: Path, out: Path, entry: dict[str, Any], said: str) -> None:
    code, _, err = Running(entry.pop("port", link), out, **entry).end()
    assert code == 1
    assert said in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_decoding_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DecodeError, match="not a recording"):
        decode(tmp_path)
    (tmp_path / "meter.json").write_text('{"kind": "smartpower3", "channels": {"0": "system"}}')
    (tmp_path / "stream.raw").write_bytes(os.urandom(4) + b"\xff" * 60)
    assert main([str(tmp_path)]) == 1
    assert "not a raw meter stream" in capsys.readouterr().err
    assert not (tmp_path / "samples.parquet").exists()
