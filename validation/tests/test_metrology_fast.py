"""The benchmarks of the fast meter, in small: their figures come out, and right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from instrumentation.meters import registry
from instrumentation.trace import StreamWriter
from validation.bench import Figure
from validation.metrology import stream, throughput

needs_instruments = pytest.mark.skipif(
    "powersensor3" not in registry.kinds(), reason="fde-instruments is not installed: make venv"
)


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.figure: figure for figure in figures}


@needs_instruments
def test_a_stream_at_full_speed_is_recorded() -> None:
    figures = by_name(stream.measure(quick=True))
    assert figures["frames sent"].value == stream.QUICK_S * stream.FRAMES_HZ
    # On a busy machine the port may overflow, which the figures must say.
    refused = figures["pieces that the port did not take"].value
    lost = figures["frames lost"].value - refused * stream.PIECE_FRAMES
    assert 0 <= lost <= (stream.PIECE_FRAMES if refused else 0)
    if not refused:
        assert figures["frames out of order"].meets
    if not refused and not figures["times that the sender was late and continued later"].value:
        assert figures["faults that the driver saw"].meets
        assert figures["records of 1 ms decoded"].value == stream.QUICK_S * 1000 - 1


def test_frames_carry_their_number(tmp_path: Path) -> None:
    writer = StreamWriter(tmp_path / "stream.raw")
    data = stream.numbered_frames(0.1)
    writer.append(1, b"")
    writer.append(1, b"before the start")
    writer.append(2, b"S", sent=True)
    writer.append(3, data[: 18 * 500])
    writer.append(4, data[18 * 501 :])
    writer.close()
    numbers = stream.kept_numbers(tmp_path / "stream.raw")
    assert len(numbers) == 1999
    assert np.flatnonzero(np.diff(numbers) % stream.NUMBERS != 1).tolist() == [499]


@needs_instruments
def test_decoding_and_integrating_gives_the_true_energies() -> None:
    figures = throughput.measure(quick=True)
    errors = [figure for figure in figures if figure.figure.startswith("largest error")]
    assert len(errors) == 2
    assert all(0 < figure.value < 0.2 for figure in errors)
    assert by_name(figures)["time, pandas / ours"].value > 0
