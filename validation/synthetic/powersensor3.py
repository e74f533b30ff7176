"""Recordings of a PowerSensor3 at 1 kHz in the recorder's format, hours of them in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from analysis.suite.records import SYNTHETIC
from fde_instruments.meters.powersensor3 import PowerSensor3
from fde_instruments.simulators.powersensor3 import PowerSensor3Simulator
from instrumentation.trace import StreamWriter
from validation.synthetic.folder import Floats, dump

FRAMES_HZ, FRAME_BYTES, RAILS = 1000, 18, 4
PIECE_FRAMES = 5
DELAY_NS = 200_000  # from the end of a piece's last frame to its arrival
PIECE = np.dtype(
    [("t_ns", "<u8"), ("length", "<u4"), ("frames", np.uint8, (PIECE_FRAMES, FRAME_BYTES))]
)
_CHUNK_FRAMES = 500_000


def chunks(frames: int) -> Iterator[tuple[int, int]]:
    """Yield number of the first frame and count of frames of each part that fits in memory."""
    for first in range(0, frames, _CHUNK_FRAMES):
        yield first, min(_CHUNK_FRAMES, frames - first)


def write_recording(
    folder: Path, channels: Mapping[str, str], energies_j: Iterable[Floats], start_ns: int = 0
) -> None:
    """Write meter.json and stream.raw; `energies_j` are [frames, rails] at each frame's end."""
    simulator = PowerSensor3Simulator(FRAMES_HZ)
    meter = PowerSensor3(channels, simulator.settings)
    document = {
        "format": "fde-meter/2",
        "name": folder.name,
        "kind": meter.kind,
        "port": "pty",
        "channels": channels,
        "origin": SYNTHETIC,
        **meter.description(),
    }
    dump(folder / "meter.json", document)
    stream = folder / "stream.raw"
    _write_opening(stream, meter, simulator, start_ns)
    first = 0
    with stream.open("ab") as file:
        for energy_j in energies_j:
            file.write(_pieces(simulator.advance(energy_j), first, start_ns))
            first += len(energy_j)


def _write_opening(
    stream: Path, meter: PowerSensor3, simulator: PowerSensor3Simulator, start_ns: int
) -> None:
    """Write the opening of the port and the exchange before the first frame."""
    writer = StreamWriter(stream)
    writer.append(start_ns, b"")
    meter.opened()
    while request := meter.request(start_ns):
        meter.on_request_sent(request, start_ns)
        writer.append(start_ns, request, sent=True)
        if answer := simulator.receive(request):
            meter.feed(answer, start_ns)
            writer.append(start_ns, answer)
    writer.close()


def _pieces(data: bytes, first: int, start_ns: int) -> bytes:
    """Build records of stream.raw; `first` is the number of earlier frames."""
    frames = np.frombuffer(data, np.uint8).reshape(-1, PIECE_FRAMES, FRAME_BYTES)
    pieces = np.zeros(len(frames), PIECE)
    last = first + PIECE_FRAMES * np.arange(1, len(frames) + 1)
    pieces["t_ns"] = start_ns + last * 1_000_000_000 // FRAMES_HZ + DELAY_NS
    pieces["length"] = PIECE_FRAMES * FRAME_BYTES
    pieces["frames"] = frames
    return pieces.tobytes()
