"""The recorder processes of a suite, one a meter: started, heard, watched, stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.controller.errors import ControllerError
from instrumentation.recorder_port import MeterConfig, RecorderError

POLL_S = 0.1
# A recorder itself gives up before that, and says why: a few periods of its meter, and some seconds
# to hear what else is there.
START_LIMIT_S = 60.0
START_LIMIT_PERIODS = 10
STOP_LIMIT_S = 15.0


def start_limit_s(meter: Mapping[str, Any]) -> float:
    """How long a meter may take until it is heard. Raises ControllerError on a wrong entry."""
    try:
        driver = MeterConfig.from_json(json.dumps(meter)).driver()
    except RecorderError as error:
        raise ControllerError(str(error)) from None
    return START_LIMIT_S + START_LIMIT_PERIODS * driver.period_s


class Recorders:
    """A context in which every meter is recorded into `suite_dir/meters/<name>`.

    Entering returns once all meters are heard and raises ControllerError where one is silent. The
    processes stand apart from the terminal: Ctrl-C must not end them before the suite is stopped.
    """

    def __init__(self, meters: Sequence[Mapping[str, Any]], suite_dir: Path) -> None:
        self._meters = meters
        self._suite_dir = suite_dir
        self._running: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Recorders:
        limits_s = {meter["name"]: start_limit_s(meter) for meter in self._meters}
        try:
            for meter in self._meters:
                self._start(meter)
            for name, limit_s in limits_s.items():
                self._wait_until_heard(name, limit_s)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def watts(self) -> dict[str, float]:
        """Power now, by channel."""
        return {
            channel: float(power_w)
            for name in self._running
            for channel, power_w in self._status(name).get("watts", {}).items()
        }

    def check(self) -> None:
        """ControllerError if a recorder has ended: what runs from here on would lack its joules."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise ControllerError(self._last_words(name))

    def stop(self) -> None:
        """End all recorders in order; what they have written is whole."""
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.communicate(timeout=STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        self._running.clear()

    def _start(self, meter: Mapping[str, Any]) -> None:
        name = meter["name"]
        status = self._status_path(name)
        status.parent.mkdir(parents=True, exist_ok=True)
        status.unlink(missing_ok=True)  # of an earlier session: it would say "recording"
        argv = [sys.executable, "-m", "instrumentation.recorder", "--meter", json.dumps(meter)]
        argv += ["--out", str(self._suite_dir / "meters" / name), "--status", str(status)]
        self._running[name] = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _wait_until_heard(self, name: str, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while self._status(name).get("state") != "recording":
            if self._running[name].poll() is not None:
                raise ControllerError(self._last_words(name))
            if time.monotonic() > deadline:
                raise ControllerError(
                    f"The recorder of meter {name} heard nothing in {limit_s:.0f} s and did not "
                    "say why: end what else uses the port, and start again."
                )
            time.sleep(POLL_S)

    def _last_words(self, name: str) -> str:
        stderr = self._running[name].stderr
        lines = stderr.read().strip().splitlines() if stderr else []
        reason = lines[-1].removeprefix("fde: ") if lines else "it gave no reason"
        return f"The recorder of meter {name} ended: {reason}"

    def _status_path(self, name: str) -> Path:
        return self._suite_dir / "status" / f"{name}.json"

    def _status(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(self._status_path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
