"""Commands of the control socket for a running drive.

- `stats`: the counters; `status`: the drive, its lock states and the faults in force; `calls`: what
  methods hosts have called, and how they ended.
- `power-cycle`, `warm-reset`: every connection ends; the drive does what it does on a loss of
  power, or on a reset.
- `behave` with the parameters of a `drive.behaviour`; without any, as fast as it can be again.
- `measure-power` with the coefficients of `drive.power`: from now on the drive measures its power;
  without any, no longer.
- `fault` with `name` and the fault's parameters (`drive.faults`); `clear-faults`.
- `vices` with those of `drive.vices` that the drive is to have from now on; without any, none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from . import behaviour, faults, power, vices
from .behaviour import Timing
from .control import Action, ControlError
from .faults import AuthorityLockedOut, BlockSid, Fault, RefuseOpal, ShadowOn
from .opal.tper import Tper
from .power import PowerMeter
from .server import Server
from .subsystem import Subsystem


class Actions:
    """The control socket's commands, bound to one drive."""

    def __init__(self, subsystem: Subsystem, server: Server) -> None:
        self._subsystem = subsystem
        self._tper = subsystem.tper
        self._server = server

    def by_name(self) -> dict[str, Action]:
        return {
            "stats": _bare(self._subsystem.stats.snapshot),
            "status": _bare(self.status),
            "calls": _bare(self.calls),
            "power-cycle": _bare(self.power_cycle),
            "warm-reset": _bare(self.warm_reset),
            "behave": self.behave,
            "measure-power": self.measure_power,
            "fault": self.fault,
            "vices": self.vices,
            "clear-faults": _bare(self.clear_faults),
        }

    def status(self) -> dict[str, object]:
        config = self._subsystem.config
        fields: dict[str, object] = {
            name: getattr(config, name) for name in ("model", "serial", "opal")
        }
        fields |= {
            "vices": self._subsystem.vices.describe(),
            "denied_reads": self._subsystem.denied_reads,
            "denied_writes": self._subsystem.denied_writes,
        }
        if (timing := self._subsystem.timing) is not None:
            fields |= {
                "behaviour": asdict(timing.behaviour),
                "temperature_c": round(timing.temperature_c(time.monotonic()), 2),
                "throttlings": timing.throttlings,
                "used_share": round(timing.used_share, 4),
            }
        in_force = self._subsystem.faults.describe()
        if self._tper is None:
            return {**fields, "faults": in_force}
        if self._tper.refusing:
            in_force.append(faults.describe(RefuseOpal()))
        return {**fields, **self._tper.status(), "faults": in_force}

    def calls(self) -> dict[str, object]:
        return {"calls": self._need_tper().calls()}

    def power_cycle(self) -> dict[str, object]:
        return self._interrupt(Tper.power_cycle)

    def warm_reset(self) -> dict[str, object]:
        return self._interrupt(Tper.reset)

    def _interrupt(self, event: Callable[[Tper], None]) -> dict[str, object]:
        self._subsystem.reset_controllers()
        with self._server.interrupted():
            if self._tper is not None:
                event(self._tper)
        return {}

    def behave(self, request: Mapping[str, Any]) -> dict[str, object]:
        """Set the timing model, starting with an empty cache, a cool disk and no block in use."""
        subsystem = self._subsystem
        if not request:
            subsystem.timing = None
            return {}
        size_bytes = subsystem.config.blocks * subsystem.config.block_bytes
        timing = Timing(behaviour.parse(request), size_bytes, time.monotonic())
        subsystem.timing = timing
        return {"behaviour": asdict(timing.behaviour)}

    def measure_power(self, request: Mapping[str, Any]) -> dict[str, object]:
        """Start measuring power; a host sees this when it identifies the drive again."""
        subsystem, coefficients = self._subsystem, power.parse(request)
        if subsystem.power is not None:
            subsystem.power.close()
        subsystem.power = PowerMeter(subsystem.stats, coefficients) if request else None
        return {"power": asdict(coefficients)}

    def fault(self, request: Mapping[str, Any]) -> dict[str, object]:
        parameters = dict(request)
        fault = faults.parse(parameters.pop("name", None), parameters)
        match fault:
            case AuthorityLockedOut(authority):
                self._need_tper(fault).lock_out(authority)
            case BlockSid():
                self._need_tper(fault).block_sid()
            case RefuseOpal():
                self._need_tper(fault).refusing = True
            case ShadowOn():
                self._need_tper(fault).show_shadow()
            case _:
                self._subsystem.faults.add(fault)
        return {"fault": faults.describe(fault)}

    def vices(self, request: Mapping[str, Any]) -> dict[str, object]:
        self._subsystem.vices = parsed = vices.parse(request)
        if self._tper is not None:
            self._tper.set_vices(parsed)
        return {"vices": parsed.describe()}

    def clear_faults(self) -> dict[str, object]:
        """End the lasting faults; a fault that became the drive's state (a blocked SID) stays."""
        self._subsystem.faults.clear()
        if self._tper is not None:
            self._tper.refusing = False
        return {}

    def _need_tper(self, fault: Fault | None = None) -> Tper:
        if self._tper is None:
            subject = f"the fault {faults.describe(fault)['name']}" if fault else "this command"
            raise ControlError(f"{subject} is for a self-encrypting drive; this one is plain")
        return self._tper


def _bare(action: Callable[[], Mapping[str, Any]]) -> Action:
    """Wrap a function without parameters as an action that refuses parameters."""

    def run(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request:
            raise ControlError(f"this command takes no parameters, not {', '.join(request)}")
        return action()

    return run
