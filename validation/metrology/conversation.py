"""Conversations of a driver and a simulator in counted time, without waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from instrumentation.decode import Decoded, Decoder, decode_all
from instrumentation.meters.base import Meter
from instrumentation.tests.simulators.registry import Simulator
from instrumentation.trace import Frame, Pieces, read_pieces

Wire = Callable[[bytes], bytes]


def faultless(piece: bytes) -> bytes:
    """Pass a piece on unchanged, as a wire without faults does."""
    return piece


def conversation(
    meter: Meter,
    simulator: Simulator,
    energy_j: NDArray[np.float64],
    *,
    wire: Wire = faultless,
    start_ns: int = 0,
    together: int = 1,
) -> Iterator[Frame]:
    """Yield the frames that a recorder would store: an opening, then both directions.

    `energy_j` [n, channels] as for `Simulator.advance`, `together` periods at a time. `wire` is
    what becomes of each piece that the meter sends. The driver is fed on the way, so that it asks
    what it would ask; whoever wants its records decodes the frames with a fresh one.
    """
    meter.opened()
    yield Frame(start_ns, b"")
    period_ns = round(simulator.period_s * 1e9)
    for first in range(0, len(energy_j), together):
        end_ns = start_ns + (first + together) * period_ns
        now_ns = start_ns + first * period_ns
        while meter.due_ns is not None and (now_ns := max(now_ns, meter.due_ns)) < end_ns:
            asked = list(_ask(meter, simulator, wire, now_ns))
            yield from asked
            if not asked:
                break
        sent = wire(simulator.advance(energy_j[first : first + together]))
        if sent:
            meter.feed(sent, end_ns)
            yield Frame(end_ns, sent)


def _ask(meter: Meter, simulator: Simulator, wire: Wire, now_ns: int) -> Iterator[Frame]:
    """Yield one request, if one is due, and the answer."""
    request = meter.request(now_ns)
    if not request:
        return
    meter.on_request_sent(request, now_ns)
    yield Frame(now_ns, request, sent=True)
    answer = wire(simulator.receive(request))
    if answer:
        meter.feed(answer, now_ns)
        yield Frame(now_ns, answer)


def read_frames(path: Path) -> Iterator[Frame]:
    """Yield the frames of a stream one by one. Raises StreamError."""
    for part in read_pieces(path):
        yield from part if isinstance(part, Pieces) else (part,)


def pieces_of(frames: Sequence[Frame]) -> Pieces:
    """Return received frames that follow one another as a stream yields them."""
    data = b"".join([frame.data for frame in frames])
    return Pieces([f.t_mono_ns for f in frames], [len(f.data) for f in frames], data)


def decode_frames(meter: Meter, frames: Iterable[Frame]) -> Decoded:
    """Decode frames with a fresh driver, all at once."""
    parts: list[Frame | Pieces] = []
    for received, group in groupby(frames, lambda frame: bool(frame.data) and not frame.sent):
        each = list(group)
        parts += [pieces_of(each)] if received else each
    return decode_all(Decoder(meter), parts)
