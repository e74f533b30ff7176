"""Test each driver and its connection with seeded hostile answers.

`python -m instrumentation.tests.hostile_wires --count 10000` asks servers on loopback whose answers
drip, never end, inflate or are missing, and gives recordings of any bytes to the drivers of serial
meters. Each read must return, with bytes or an OSError; the process's memory and the longest read
are written to build/bench/hostile-wires.json.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import random
import re
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from instrumentation import network
from instrumentation.clock import monotonic_ns
from instrumentation.meters import registry
from instrumentation.meters.base import Meter
from instrumentation.trace import Frame
from validation.metrology.conversation import decode_frames

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
LIMIT_S = 0.3  # for an answer
MOST_MEMORY_MB = 200
Pieces = Iterator[bytes]
Answer = Callable[[random.Random], Pieces]

DOCUMENTS = (
    *(b'{"power": 1e999}', b'{"power": ' + b"9" * 60_000 + b"}", b"[" * 60_000, b'{"power": {}}'),
    *(b'{"power": 5.5}', b"\xff\xfe", b"", b"null", b'{"power": "\\ud800"}', b'{"power": NaN}'),
)


def _endless(piece: bytes) -> Pieces:
    return itertools.repeat(piece)


def _dripping(text: bytes) -> Pieces:
    for n in itertools.count():
        time.sleep(LIMIT_S / 10)
        yield text[n % len(text) : n % len(text) + 1]


def http_answer(chance: random.Random) -> Pieces:
    """Return a hostile answer by HTTP."""
    ok, body = b"HTTP/1.1 200 OK\r\n", chance.choice(DOCUMENTS)
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    chunked = ok + b"Transfer-Encoding: chunked\r\n\r\n"
    digest = b"HTTP/1.1 401 No\r\nContent-Length: 0\r\nWWW-Authenticate: "
    kinds: tuple[Callable[[], Pieces], ...] = (
        lambda: iter((ok + length + body,)),
        lambda: iter((ok + b"Content-Length: 99999999999\r\n\r\n" + body,)),
        lambda: _dripping(ok),
        lambda: itertools.chain((ok + b"\r\n",), _dripping(b" ")),
        lambda: _endless(b"HTTP/1.1 100 Continue\r\n\r\n"),
        lambda: itertools.chain((ok,), _endless(b"A: " + b"x" * 60_000 + b"\r\n")),
        lambda: itertools.chain((ok + b"A: ",), _endless(b"x" * 4096)),
        lambda: itertools.chain((ok + b"\r\n",), _endless(b"1" * 65_536)),
        lambda: itertools.chain((chunked + b"-5\r\n",), _endless(b"x" * 4096)),
        lambda: itertools.chain((chunked,), _endless(b"1\r\nx\r\n")),
        lambda: itertools.chain((chunked + b"fffffffffffffff\r\n",), _endless(b"x" * 4096)),
        lambda: itertools.chain((chunked + b"1;",), _endless(b"x" * 4096)),
        lambda: iter((ok + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(20 << 20)),)),
        lambda: itertools.chain(
            (ok + b"Content-Encoding: gzip\r\n\r\n",), _endless(gzip.compress(b""))
        ),
        lambda: iter(
            (digest + chance.choice((b"Digest realm=", b"Digest =,=", b"")) + b"\r\n\r\n",)
        ),
        lambda: iter((b"HTTP/1.1 302 x\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",)),
        lambda: iter((b"HTTP/9.9 xx\r\n\r\n",)),
        lambda: iter((chance.randbytes(chance.choice((1, 100, 70_000))),)),
        lambda: iter(()),
    )
    return chance.choice(kinds)()


def scpi_answer(chance: random.Random) -> Pieces:
    """Return a hostile answer of an instrument at a socket."""
    kinds: tuple[Callable[[], Pieces], ...] = (
        lambda: iter((b"1.5E+1\n",)),
        lambda: _endless(b"1" * 65_536),
        lambda: _dripping(b"1"),
        lambda: _endless(b"\n"),
        lambda: iter((b"1," * 30_000 + b"\n",)),
        lambda: iter((b"9" * 60_000 + b"\n",)),
        lambda: iter((chance.randbytes(100) + b"\n", chance.randbytes(50))),
        lambda: iter(()),
    )
    return chance.choice(kinds)()


class TcpServer:
    """A server that answers each question with the pieces of `answer`."""

    def __init__(self, answer: Answer, chance: random.Random) -> None:
        self._answer, self._chance = answer, chance
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                wire, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: socket.socket) -> None:
        with contextlib.suppress(OSError), wire:
            wire.settimeout(10)
            while wire.recv(65_536):
                for piece in self._answer(self._chance):
                    wire.sendall(piece)

    def close(self) -> None:
        self._listener.close()


STATED = {"period_s": 1, "resolution_w": 0.1}
DECLARED = {"power_unit_w": 1, "averaged_s": 1, "answer_limit_s": LIMIT_S}
SETTINGS: dict[str, dict[str, Any]] = {
    "http": {"profile": "generic", "path": "/d", "power": "/power", **DECLARED},
    "scpi": {"query": "P?"},
}
LINE: dict[str, Any] = {
    "pattern": r"(?P<power_w>[0-9.]+)(?:,.*)?",
    "period_s": 0.1,
    "relative_limit": 0.01,
    "absolute_limit_w": 0.1,
    "accuracy_source": "none",
}
SERIAL = [kind for kind in registry.kinds() if "port" in registry.load(kind).addresses]
SOUND = (
    *(b"5.5\n", b";", b"#d,-,18,", b"1,2,3", b"\xff\x3f\xff\x3f", b"\x06\x1f", b"\r\n", b"@", b"#"),
    *(b"@65535 00000000 \n", b"\xf0\x40\x80\x00", b"\x80\x00", b"D", b"R", b"S", b"s"),
    b"ssssssssX",
    *(b"\xa5\x08\x41\x00\x02\x4e\x20\x5e", b"*IDN?\r\n", b"0000000001,", b"\0" * 41, b" " * 500),
)


def _opened(kind: str, server: Any) -> tuple[Meter, Any]:
    settings = {**SETTINGS[kind], **STATED}
    meter = registry.load(kind)({"0": "system"}, settings)
    meter.opened()
    if kind == "http":
        return meter, network.open_network_meter(f"http://{HOST}:{server.port}", meter)
    address = f"TCPIP::{HOST}::{server.port}::SOCKET"
    return meter, network.VisaTransport(address, framed=True, limit_s=LIMIT_S)


def ask(kind: str, server: Any) -> tuple[str, float]:
    """Ask once and read until the limit; return the outcome and the longest read in s."""
    longest_s, outcome = 0.0, "nothing"
    try:
        meter, wire = _opened(kind, server)
    except OSError:
        return "not opened", 0.0
    with contextlib.closing(wire):
        try:
            wire.write(meter.request(monotonic_ns()))
            until = time.monotonic() + 2 * LIMIT_S
            while outcome == "nothing" and time.monotonic() < until:
                begun = time.monotonic()
                t_ns, data = wire.read(0.05)
                longest_s = max(longest_s, time.monotonic() - begun)
                if data:
                    fed = meter.feed(data, t_ns)
                    outcome = "fault" if fed.faults else "answer"
        except OSError:
            outcome = "lost"
    return outcome, longest_s


def recording(chance: random.Random) -> list[Frame]:
    """Return frames of any bytes, sent and received, large and small."""
    frames = [Frame(1, b"", False)]
    for n in range(chance.choice((1, 5, 200))):
        data = chance.choice(SOUND) * chance.choice((1, 1, 10, 5000))
        data = data if chance.random() < 0.7 else chance.randbytes(chance.choice((3, 90, 9000)))
        is_sent = chance.random() < 0.3
        frames.append(Frame(n * chance.choice((0, 1, 10**8)), data, is_sent))
    return frames


def run(count: int, seed: int = 0) -> dict[str, Any]:
    """Test `count` answers of each kind of meter; return the figures."""
    chance = random.Random(seed)
    servers = {"http": TcpServer(http_answer, chance), "scpi": TcpServer(scpi_answer, chance)}
    outcomes: dict[str, Counter[str]] = {}
    longest_s = {}
    for kind, server in servers.items():
        ended = [ask(kind, server) for _ in range(count)]
        outcomes[kind] = Counter(result for result, _ in ended)
        longest_s[kind] = round(max(read_s for _, read_s in ended), 3)
        server.close()
    for kind in SERIAL:
        settings: dict[str, Any] = LINE if kind == "line" else {}
        channel = registry.load(kind).own_channels[:1] or ("0",)
        counts: Counter[str] = Counter()
        for _ in range(count):
            meter = registry.load(kind)({channel[0]: "system"}, settings)
            decoded = decode_frames(meter, recording(chance))
            outcome = "faults" if decoded.faults else "none"
            counts["records" if len(decoded.samples) else outcome] += 1
        outcomes[kind] = counts
    # Not ru_maxrss, which begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    memory_mb = int(re.findall(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[0]) >> 10
    figures = {"outcomes": outcomes, "longest_read_s": longest_s, "memory_mb": memory_mb}
    return {"count": count, **figures}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0 if the memory stayed within its limit."""
    parser = argparse.ArgumentParser(prog="python -m instrumentation.tests.hostile_wires")
    parser.add_argument("--count", type=int, default=1000, help="answers of each kind of meter")
    default = ROOT / "build" / "bench" / "hostile-wires.json"
    parser.add_argument("--out", type=Path, default=default, help="the figures, as JSON")
    options = parser.parse_args(arguments)
    figures = run(options.count)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figures))
    return int(figures["memory_mb"] > MOST_MEMORY_MB)


if __name__ == "__main__":
    sys.exit(main())
