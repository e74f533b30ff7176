"""Record a PowerSensor3 at full speed: losses and cost of the recorder.

20,000 frames a second of 8 sensors (360 kB/s) come from another process on a pseudo-terminal.
The frames are made before and sent in small pieces at their due time; each carries its own number
in the level of a sensor that no channel reads, so that what the recorder kept can be counted
without the driver. What the port did not take is counted apart: then it was the port that lost it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contract.errors import LabError
from fde_instruments.simulators.powersensor3 import PowerSensor3Simulator
from instrumentation.decode import write_samples
from instrumentation.simulators.play import SimulatedPort
from lab.launcher import wait_for
from lab.state import REPOSITORY
from validation import processes
from validation.bench import Figure, at_most
from validation.metrology.conversation import read_frames

FRAMES_HZ = 20_000
FRAME_BYTES = 18
PIECE_FRAMES = 40  # 2 ms
NUMBERED = 7  # the sensor, of rail 3, that carries the number of the frame
NUMBERS = 1000  # and starts again; levels 0 to 999
CHANNELS = {"0": "system", "1": "aux", "2": "drive"}
QUICK_S = 1.5
_START_LIMIT_S = 20.0
_BURST = 5  # pieces that may follow at once after a delay of the sender


def numbered_frames(seconds: float) -> bytes:
    """Return the frames of a load that jumps, each with its number."""
    simulator = PowerSensor3Simulator(FRAMES_HZ)
    simulator.receive(b"S")
    count = round(seconds * FRAMES_HZ)
    watts = np.random.default_rng(1).choice([0.1, 3.0, 20.0], (count, 4))
    data = np.frombuffer(
        bytearray(simulator.advance(np.cumsum(watts / FRAMES_HZ, axis=0))), np.uint8
    ).reshape(count, FRAME_BYTES)
    number = np.arange(count) % NUMBERS
    at = 2 + 2 * NUMBERED
    data[:, at] = data[:, at] & 0xF0 | number >> 6
    data[:, at + 1] = number & 0x3F
    return data.tobytes()


def play(link: Path, seconds: float, outcome: Path) -> None:
    """Answer as the meter until the stream is requested, then send all; write a report as JSON."""
    data = numbered_frames(seconds)
    meter, port = PowerSensor3Simulator(FRAMES_HZ), SimulatedPort(link)
    request = b""
    while not request.endswith(b"S"):
        port.wait(0.1)
        if request := port.receive():
            port.send(meter.receive(request))
    begun_s = start_s = time.monotonic()
    late_s, put_off = 0.0, 0
    size = PIECE_FRAMES * FRAME_BYTES
    for number, at in enumerate(range(0, len(data), size)):
        wait_s = start_s + (number + 1) * PIECE_FRAMES / FRAMES_HZ - time.monotonic()
        late_s = max(late_s, -wait_s)
        if wait_s > 0:
            time.sleep(wait_s)
        elif wait_s < -_BURST * PIECE_FRAMES / FRAMES_HZ:
            start_s -= wait_s  # a real meter's buffer would not grow: continue later instead
            put_off += 1
        port.send(data[at : at + size])
    sent = {
        "frames": len(data) // FRAME_BYTES,
        "dropped": port.dropped,
        "put_off": put_off,
        "late_s": late_s,
        "took_s": time.monotonic() - begun_s,
    }
    outcome.write_text(json.dumps(sent))
    time.sleep(1.0)
    port.close()


def kept_numbers(stream: Path) -> NDArray[np.int64]:
    """Return the numbers of the frames in a raw stream, read without the driver."""
    data, frames = b"", read_frames(stream)
    for frame in frames:
        if frame.sent and frame.data == b"S":
            data = b"".join(frame.data for frame in frames if not frame.sent)
    content = np.frombuffer(data, np.uint8)[: len(data) // FRAME_BYTES * FRAME_BYTES]
    rows = content.reshape(-1, FRAME_BYTES)
    at = 2 + 2 * NUMBERED
    return (rows[:, at].astype(np.int64) & 0xF) << 6 | rows[:, at + 1]


def _wait_for(event: str, condition: Callable[[], bool], limit_s: float) -> None:
    if not wait_for(condition, limit_s):
        raise LabError(f"{event} did not come within {limit_s:.0f} s: is the machine overloaded?")


def _records(status: Path) -> int:
    try:
        return int(json.loads(status.read_text(encoding="utf-8"))["records"])
    except (OSError, ValueError):
        return 0


def _recorded(folder: Path, seconds: float) -> tuple[dict[str, float], float]:
    """Record the whole stream; the sender's outcome, and the recorder's share of a core."""
    link, outcome, out = folder / "meter", folder / "outcome.json", folder / "out"
    python = [sys.executable, "-m"]
    player = subprocess.Popen(
        [*python, "validation.metrology.stream", str(link), str(seconds), str(outcome)],
        cwd=REPOSITORY,
    )
    entry = {
        "name": "fast",
        "kind": "powersensor3",
        "port": str(link),
        "origin": "modelled",
        "channels": CHANNELS,
    }
    recorder = None
    try:
        _wait_for("The simulated meter", link.is_symlink, _START_LIMIT_S)
        recorder = subprocess.Popen(
            [*python, "instrumentation.recorder", "--meter", json.dumps(entry), "--out", str(out)],
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
        )
        status = out / "status.json"
        _wait_for("The first record", lambda: _records(status) > 0, _START_LIMIT_S)
        cpu_s, wall_s = processes.cpu_s(recorder.pid), time.monotonic()
        time.sleep(seconds * 0.9)
        share = (processes.cpu_s(recorder.pid) - cpu_s) / (time.monotonic() - wall_s)
        _wait_for("The end of the stream", outcome.exists, 0.5 * seconds + _START_LIMIT_S)
        time.sleep(0.3)
        recorder.send_signal(signal.SIGTERM)
        if recorder.wait(_START_LIMIT_S):
            raise LabError("The recorder failed: see its output above.")
        return json.loads(outcome.read_text(encoding="utf-8")), share
    finally:
        for process in (recorder, player):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def measure(quick: bool = False) -> list[Figure]:
    """Record for some tens of seconds, or some seconds where `quick`."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sent, share = _recorded(folder, QUICK_S if quick else 40.0)
        numbers = kept_numbers(folder / "out" / "stream.raw")
        out_of_step = int((np.diff(numbers) % NUMBERS != 1).sum())
        decoder = write_samples(folder / "out")
    for fault in decoder.faults:
        print(f"stream: {fault.kind}: {fault.detail}", file=sys.stderr)
    lost = int(sent["frames"]) - len(numbers)
    title, faults = "faults that the driver saw", len(decoder.faults)
    rate = sent["frames"] / sent["took_s"] * FRAME_BYTES / 1000
    return [
        Figure("frames sent", sent["frames"], ""),
        Figure("rate", rate, "kB/s"),
        Figure("pieces that the port did not take", sent["dropped"], ""),
        at_most("frames lost", lost, "", 0),
        at_most("frames out of order", out_of_step, "", 0),
        Figure("times that the sender was late and continued later", sent["put_off"], ""),
        # A sender that pauses stops the meter's clock, which a driver must take for a loss.
        Figure(title, faults, "") if sent["put_off"] else at_most(title, faults, "", 0),
        Figure("records of 1 ms decoded", decoder.records, ""),
        at_most("recorder's share of one core", 100 * share, "%", 15),
        Figure("sender late, at most", 1000 * sent["late_s"], "ms"),
    ]


if __name__ == "__main__":
    play(Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
