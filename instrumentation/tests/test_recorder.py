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
from instrumentation.simulators.port import SimulatedPort
from instrumentation.simulators.smartpower3 import SmartPower3Simulator
from instrumentation.trace import read_frames

SYSTEM_W, DRIVE_W = 20.0, 0.06
Send = Callable[[SimulatedPort], object]


def smartpower3() -> Send:
    """Lines of one meter that goes on over several ports."""
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
        command = [sys.executable, "-m", "instrumentation.recorder", "--meter", json.dumps(meter)]
        self.process = subprocess.Popen(
            [*command, "--out", str(out), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def status(self) -> dict[str, Any]:
        try:
            told = json.loads((self.out / "status.json").read_text())
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
        running.wait_until(lambda s: s["state"] == "lost")
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


def test_silent_meter_is_said(link: Path, out: Path) -> None:
    with plugged_in(link, lambda _: None):
        code, _, err = Running(link, out).end()
    assert code == 1
    assert "is silent" in err
    assert str(link) in err
    assert "ther ports here:" in err


def test_foreign_stream_is_shown(link: Path, out: Path) -> None:
    with plugged_in(link, lambda port: port.send(b"$GPGGA,123519,4807.038,N\r\n")):
        code, _, err = Running(link, out).end()
    assert code == 1
    assert "sends no records of a smartpower3" in err
    assert "GPGGA" in err


def test_missing_port_is_said(link: Path, out: Path) -> None:
    code, _, err = Running(link, out).end()
    assert code == 1
    assert err.startswith(f"fde: meter0: {link} is not there")
    assert "Ports here:" in err


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
        ({"kind": "smartpower"}, "Did you mean smartpower3"),
        ({"origin": "guessed"}, "measured or modelled"),
        ({"channels": {"7": "system"}}, "no channel 7"),
        ({"name": "../meter0"}, "cannot name a meter"),
        ({"baud": "fast"}, "no baud rate"),
    ],
)
def test_wrong_entry_is_refused(link: Path, out: Path, entry: dict[str, Any], said: str) -> None:
    code, _, err = Running(link, out, **entry).end()
    assert code == 1
    assert said in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_decoding_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DecodeError, match="no recording"):
        decode(tmp_path)
    (tmp_path / "meter.json").write_text('{"kind": "smartpower3", "channels": {"0": "system"}}')
    (tmp_path / "stream.raw").write_bytes(os.urandom(4) + b"\xff" * 60)
    assert main([str(tmp_path)]) == 1
    assert "not a raw meter stream" in capsys.readouterr().err
    assert not (tmp_path / "samples.parquet").exists()
