"""Simulator of a management controller (BMC) behind ipmitool: the output of ipmitool."""

from __future__ import annotations

from typing import ClassVar

from contract.strict_json import Document
from fde_instruments.meters.ipmi import QUESTION
from instrumentation.tests.simulators.networked import NetworkSimulator, TcpServer

_TEXT = """
    Instantaneous power reading:              {:8d} Watts
    Minimum during sampling period:           {:8d} Watts
    Maximum during sampling period:           {:8d} Watts
    Average power reading over sample period: {:8d} Watts
    IPMI timestamp:                           01/01/26 00:00:{:02d} UTC
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   {}

"""


class IpmiSimulator(NetworkSimulator):
    """A simulated controller that answers DCMI's question; `active` enables its power reading."""

    kind: ClassVar[str] = "ipmi"

    def __init__(self, *, step_w: float = 1.0, **display: float) -> None:
        super().__init__(step_w=step_w, **display)
        self.active = True

    @property
    def settings(self) -> Document:
        return {"period_s": self.refresh_s}

    def answer(self, request: str) -> tuple[str, bytes]:
        if self.broken or request.strip() != QUESTION.decode().strip():
            return "Invalid command", b""
        watts = round(self.power_w[0])
        state = "activated" if self.active else "deactivated"
        seconds = self.refreshes % 60
        return "ok", _TEXT.format(watts, 0, 2 * watts, watts, seconds, state).encode()

    def serve(self, host: str, port: int, secret: str = "") -> TcpServer:
        """Serve a stand-in for ipmitool instead of RMCP+: login, tab and question in a line."""

        def respond(line: bytes) -> bytes:
            login, _, question = line.decode().partition("\t")
            answer = self.asked(question)
            right = login == (secret or ":")
            return answer[1] if right and answer is not None else b"\n\n"

        server = TcpServer(respond, host, port)
        server.address = f"ipmi://{host}:{server.port}"
        return server
