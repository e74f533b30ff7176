"""The recorder's state for a live display: a small JSON file, replaced as a whole."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from pathlib import Path

from instrumentation.clock import monotonic_ns
from instrumentation.meters.rows import Fed
from instrumentation.recorder_port import MeterConfig

_PERIOD_NS = 500_000_000
_RATE_TICKS = 10


class Status:
    """Counts what happens and tells it about twice a second.

    The file holds `format`, `name`, `kind`, `origin`, `port`, `state` (`starting`, `recording`,
    `lost`, `stopped`, `failed`), `message`, `t_mono_ns`, `epoch`, `records`, `bytes`, `rate_hz`
    (records per second over the last 5 s), `watts` by channel, `gaps`, `faults`,
    `last_fault`.
    """

    def __init__(self, config: MeterConfig, path: Path) -> None:
        self._config = config
        self._path = path
        self.state = "starting"
        self.message = ""
        self.epoch = 0
        self.records = 0
        self.bytes = 0
        self.gaps = 0
        self.faults = 0
        self._last_fault = ""
        self._watts: dict[str, float] = {}
        self._ticks: deque[tuple[int, int]] = deque(maxlen=_RATE_TICKS + 1)
        self._due_ns = 0

    def take(self, fed: Fed) -> None:
        """Count what the driver made of some bytes."""
        self.records += len(fed.rows)
        if len(fed.rows):
            channels = self._config.channels.values()
            self._watts = dict(zip(channels, fed.rows.power_w[-1].tolist(), strict=True))
        for fault in fed.faults:
            self.gaps += fault.kind == "gap"
            self.faults += fault.kind != "gap"
            self._last_fault = f"{fault.kind}: {fault.detail}"

    def enter(self, state: str, message: str = "") -> None:
        """Change the state and tell it at once."""
        self.state, self.message = state, message
        self.write()

    def tick(self) -> None:
        """Tell the state if it is time to."""
        if monotonic_ns() >= self._due_ns:
            self.write()

    def _rate_hz(self, now_ns: int) -> float:
        self._ticks.append((now_ns, self.records))
        (then_ns, then), (_, now) = self._ticks[0], self._ticks[-1]
        if now_ns == then_ns:
            return 0.0
        return (now - then) / ((now_ns - then_ns) / 1e9)

    def write(self) -> None:
        """Replace the file. A failure is let pass: the recording matters, not the display."""
        now_ns = monotonic_ns()
        self._due_ns = now_ns + _PERIOD_NS
        told = {
            "format": "fde-recorder-status/1",
            "name": self._config.name,
            "kind": self._config.kind,
            "origin": self._config.origin,
            "port": self._config.port,
            "state": self.state,
            "message": self.message,
            "t_mono_ns": now_ns,
            "epoch": self.epoch,
            "records": self.records,
            "bytes": self.bytes,
            "rate_hz": round(self._rate_hz(now_ns), 2),
            "watts": self._watts,
            "gaps": self.gaps,
            "faults": self.faults,
            "last_fault": self._last_fault,
        }
        fresh = self._path.with_name(self._path.name + ".new")
        try:
            fresh.write_text(json.dumps(told) + "\n", encoding="utf-8")
            fresh.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
