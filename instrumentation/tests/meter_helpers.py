"""Helpers for tests of meters: a driver and its simulator in counted time, and recorders."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from contract import schema, strict_json
from contract.documents import RecorderStatus
from instrumentation.decode import Decoded
from instrumentation.meters.base import Meter
from instrumentation.meters.rows import ParseResult, join_results
from instrumentation.tests.simulators.registry import Simulator
from instrumentation.trace import Fault, Frame
from validation.metrology.conversation import Wire, conversation, decode_frames, faultless

AnyMeter = TypeVar("AnyMeter", bound=Meter)


def opened(meter: AnyMeter) -> AnyMeter:
    """Return a meter whose port was opened."""
    meter.opened()
    return meter


def energies(watts: list[float], simulator: Simulator) -> np.ndarray:
    """Return the energies at the ends of periods of these powers, the same in every channel."""
    joules = np.cumsum(np.asarray(watts) * simulator.period_s)
    return np.repeat(joules[:, None], len(simulator.channels), axis=1)


def talk(
    make: Callable[[], Meter], simulator: Simulator, watts: list[float], wire: Wire = faultless
) -> tuple[Decoded, list[Frame]]:
    """Record these powers, one each period; return the decoded recording and its frames."""
    frames = list(conversation(make(), simulator, energies(watts, simulator), wire=wire))
    return decode_frames(make(), frames), frames


def feed_pieces(
    meter: Meter, pieces: Iterable[bytes], step_ns: int = 1, start_ns: int = 0
) -> ParseResult:
    """Feed pieces to a driver, one each `step_ns`; return their joined result."""
    return join_results([meter.feed(p, start_ns + n * step_ns) for n, p in enumerate(pieces)])


def on_the_nth(nth: int, change: Callable[[bytes], bytes]) -> Wire:
    """Return a wire on which one piece arrives changed; pieces count from 0."""
    count = -1

    def wire(piece: bytes) -> bytes:
        nonlocal count
        count += bool(piece)
        return change(piece) if piece and count == nth else piece

    return wire


def exchange(meter: Meter, simulator: Simulator, t_ns: int) -> ParseResult:
    """Send the request that is due, if any; return the driver's result of the answer."""
    request = meter.request(t_ns)
    meter.on_request_sent(request, t_ns)
    return meter.feed(simulator.receive(request), t_ns)


def kinds(output: Decoded | ParseResult | Sequence[Fault]) -> list[str]:
    """Return the kinds of the faults."""
    return [fault.kind for fault in (output if isinstance(output, Sequence) else output.faults)]


def flag_words(meter: type[Meter], output: ParseResult) -> list[str]:
    """Return the flags of each record."""
    return [
        " ".join(word for bit, word in enumerate(meter.flag_words) if flags >> bit & 1)
        for flags in output.rows.flags.tolist()
    ]


def read_status(path: Path) -> RecorderStatus | None:
    """Return a recorder's status; None before its file is written."""
    try:
        return schema.read(RecorderStatus, strict_json.loads(path.read_text()))
    except FileNotFoundError:
        return None


def wait_for_status(
    path: Path,
    condition: Callable[[RecorderStatus], bool],
    check: Callable[[], object] = lambda: None,
) -> RecorderStatus:
    """Wait for a recorder's status; `check` raises if it will not come."""
    while (status := read_status(path)) is None or not condition(status):
        check()
        time.sleep(0.02)
    return status


def an_entry(port: object, kind: str = "smartpower3", **changes: Any) -> str:
    """Return a meter of the inventory, as JSON."""
    entry = {
        **{"name": "meter0", "kind": kind, "port": str(port), "origin": "modelled"},
        "channels": {"0": "system", "1": "drive"},
    }
    return json.dumps(entry | changes)


class Running:
    """A recorder process with the status file `status_path`."""

    def __init__(self, entry: str, out: Path, *options: str) -> None:
        self.status_path = out / "status.json"
        command = [sys.executable, "-m", "instrumentation.recorder", "--meter", entry]
        self.process = subprocess.Popen(
            [*command, "--out", str(out), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until(self, condition: Callable[[RecorderStatus], bool]) -> RecorderStatus:
        def check() -> None:
            assert self.process.poll() is None, self.process.communicate()

        return wait_for_status(self.status_path, condition, check)

    def end(self) -> tuple[int, str, str]:
        """Return exit status and output of a process that was told to end."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err
