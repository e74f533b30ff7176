"""Simulator of a power meter with SCPI: voltage, current, power and watt-hours in one answer."""

from __future__ import annotations

from typing import ClassVar

from contract.strict_json import Document
from instrumentation.tests.simulators.networked import NetworkSimulator, TcpServer


class ScpiSimulator(NetworkSimulator):
    """A simulated meter that answers `:MEAS?` after `:OUTP ON`; `over` exceeds its range."""

    kind: ClassVar[str] = "scpi"

    def __init__(self, *, step_w: float = 0.001, **display: float) -> None:
        super().__init__(step_w=step_w, **display)
        self.running = False
        self.over = False

    @property
    def settings(self) -> Document:
        return {
            "query": ":MEAS?",
            "fields": {"0": 3},
            "start": "*CLS\n:OUTP ON",
            "stop": ":OUTP OFF",
            "period_s": self.refresh_s,
            "resolution_w": self.step_w,
        }

    def answer(self, request: str) -> tuple[str, bytes] | None:
        command = request.strip().upper()
        if command.startswith(":OUTP "):
            self.running = command.endswith(" ON")
        if command == "*IDN?":
            return "ok", b"ACME,PM1,0,1.0"
        if command == "*OPC?":
            return "ok", b"1"
        if command != ":MEAS?" or not self.running:
            return None
        watts = 9.9e37 if self.over else self.power_w[0]
        amperes = 9.9e37 if self.over else watts / 230
        text = f"{230:+.4E},{amperes:+.4E},{watts:+.9E},{self.energy_j[0] / 3600:+.6E}"
        return "ok", text.encode("ascii")

    def serve(self, host: str, port: int, secret: str = "") -> TcpServer:  # noqa: ARG002 - none
        def respond(line: bytes) -> bytes:
            answer = self.asked(line.decode("ascii", "replace"))
            return b"" if answer is None else answer[1] + b"\n"

        return TcpServer(respond, host, port)
