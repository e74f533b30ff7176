"""A power distribution unit's side of SNMP: two outlets, whole W, energy in tenths of a kWh."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from typing import Any, ClassVar

from contract.strict_json import Document
from instrumentation.simulators.networked import NetworkSimulator

# Below SNMPv2-SMI's enterprises.32473, which is reserved for documentation (RFC 5612).
_OWN = "1.3.6.1.4.1.32473.1"


class SnmpSimulator(NetworkSimulator):
    """A unit that is described in the inventory, or `apc-rpdu2` with its outlets 1 and 2.

    `commands` are what was set, by OID and number, oldest first.
    """

    kind: ClassVar[str] = "snmp"

    def __init__(self, profile: str = "generic", *, step_w: float = 1.0, **display: float) -> None:
        self.profile = profile
        self.channels = ("a", "b") if profile == "generic" else ("1", "2")
        super().__init__(step_w=step_w, **display)
        self.commands: list[tuple[str, int]] = []

    @property
    def settings(self) -> Document:
        if self.profile != "generic":
            return {"profile": self.profile, "period_s": self.refresh_s}
        return {
            "profile": self.profile,
            "period_s": self.refresh_s,
            "resolution_w": self.step_w,
            "power": {"a": f"{_OWN}.1.1", "b": f"{_OWN}.1.2"},
        }

    def values(self) -> dict[str, int]:
        """Its numbers by OID."""
        if self.profile == "generic":
            return {f"{_OWN}.1.{n}": round(w) for n, w in enumerate(self.power_w, 1)}
        apc = "1.3.6.1.4.1.318.1.1.26"
        outlets = {f"{apc}.9.4.3.1.7.{n}": round(w) for n, w in enumerate(self.power_w, 1)}
        return outlets | {
            f"{apc}.4.3.1.5.1": round(sum(self.power_w) / 10),
            f"{apc}.9.4.3.1.7.3": -1,
        }

    def answer(self, request: str) -> tuple[str, bytes]:
        if self.broken:
            return "genErr", b""
        values = self.values()
        bindings = [
            [oid, "Integer", values[oid]] if oid in values else [oid, "NoSuchObject", None]
            for oid in request.split()[1:]
        ]
        return "ok", json.dumps(bindings).encode()

    def serve(self, host: str, port: int, secret: str = "") -> SnmpServer:
        return SnmpServer(self, host, port, secret or "public")


class SnmpServer:
    """An SNMP agent (pysnmp) that answers requests of version 2c in one community."""

    def __init__(self, unit: SnmpSimulator, host: str, port: int, community: str) -> None:
        if not port:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
                free.bind((host, 0))
                port = free.getsockname()[1]
        self.address = f"snmp://{host}:{port}"
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: self._loop.run_until_complete(
                self._serve(unit, host, port, community, started)
            )
        )
        self._thread.start()
        started.wait(10)

    async def _serve(
        self, unit: SnmpSimulator, host: str, port: int, community: str, started: threading.Event
    ) -> None:
        from pysnmp.carrier.asyncio.dgram import udp
        from pysnmp.entity import config, engine
        from pysnmp.entity.rfc3413 import cmdrsp, context
        from pysnmp.proto.api import v2c
        from pysnmp.proto.rfc1905 import noSuchObject
        from pysnmp.smi.instrum import AbstractMibInstrumController

        class Values(AbstractMibInstrumController):  # type: ignore[misc]  # it has no types
            def read_variables(self, *wanted: Any, **_: Any) -> list[tuple[Any, Any]]:
                with unit._lock:
                    values = unit.values()
                return [
                    (oid, v2c.Integer32(values[str(oid)]) if str(oid) in values else noSuchObject)
                    for oid, _ in wanted
                ]

            def write_variables(self, *wanted: Any, **_: Any) -> list[tuple[Any, Any]]:
                unit.commands += [(str(oid), int(value)) for oid, value in wanted]
                return list(wanted)

        agent = engine.SnmpEngine()
        config.add_transport(
            agent, udp.DOMAIN_NAME, udp.UdpTransport().open_server_mode((host, port))
        )
        config.add_v1_system(agent, "area", community)
        config.add_vacm_user(agent, 2, "area", "noAuthNoPriv", (1, 3, 6), (1, 3, 6))
        at = context.SnmpContext(agent)
        at.unregister_context_name(b"")
        at.register_context_name(b"", Values())
        cmdrsp.GetCommandResponder(agent, at)
        cmdrsp.SetCommandResponder(agent, at)
        started.set()
        await self._stopped.wait()
        agent.close_dispatcher()
        await asyncio.sleep(0)  # what it cancelled ends

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()
