"""The recorders of a suite, one a meter: started, heard, started again when they end, stopped."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract import strict_json
from contract.errors import ControllerError
from contract.interrupts import uninterrupted
from controller import hold
from controller.recorder_process import POLL_S, RecorderProcess, end_leftovers
from instrumentation.clock import boot_id
from instrumentation.recorder_port import MeterConfig, RecorderError

# A recorder itself gives up before that, and says why: a few periods of its meter, and some seconds
# to hear what else is there.
START_LIMIT_S = 60.0
START_LIMIT_PERIODS = 10
MOST_STARTS_AN_HOUR = 20
PAUSE_S = 1.0
HOUR_S = 3600.0


def start_limit_s(meter: Mapping[str, Any]) -> float:
    """How long a meter may take until it is heard. Raises ControllerError on a wrong entry."""
    try:
        driver = MeterConfig.from_json(json.dumps(meter)).driver()
    except RecorderError as error:
        raise ControllerError(str(error)) from None
    return START_LIMIT_S + START_LIMIT_PERIODS * driver.period_s


def folder_for(name: str, meters: Path) -> Path:
    """Where this boot of the controller records a meter: each boot has a clock of its own.

    `meters/<name>`, or the first of `<name>.2`, `<name>.3` … that is of this boot or not there.
    """
    number = 1
    while True:
        folder = meters / (name if number == 1 else f"{name}.{number}")
        try:
            described = strict_json.loads((folder / "meter.json").read_text(encoding="utf-8"))
            boot = described.get("controller_boot_id", boot_id())
        except (OSError, ValueError, AttributeError):
            return folder
        if boot == boot_id():
            return folder
        number += 1


class Recorders:
    """A context in which every meter is recorded below `suite_dir/meters`.

    Entering returns once all meters are heard and raises ControllerError where one is silent.
    Recorders that a killed session left behind are ended first.
    """

    def __init__(
        self,
        meters: Sequence[Mapping[str, Any]],
        suite_dir: Path,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._meters = meters
        self._suite_dir = suite_dir
        self._note = note
        self._running: list[RecorderProcess] = []
        self._starts: dict[str, deque[float]] = {}

    def __enter__(self) -> Recorders:
        _require_apart([meter["name"] for meter in self._meters])
        limits_s = {meter["name"]: start_limit_s(meter) for meter in self._meters}
        if left := end_leftovers(self._suite_dir):
            self._note(f"ended what still recorded for an earlier session: {', '.join(left)}")
        try:
            for meter in self._meters:
                folder = folder_for(meter["name"], self._suite_dir / "meters")
                told = self._suite_dir / "status" / "meters" / f"{meter['name']}.json"
                self._running.append(RecorderProcess(meter, folder, told))
                self._running[-1].start()
            for recorder in self._running:
                _wait_until_heard(recorder, limits_s[recorder.name])
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
            for recorder in self._running
            for channel, power_w in recorder.status().get("watts", {}).items()
        }

    def gaps(self) -> dict[str, int]:
        """Gaps that each meter's present recorder has seen."""
        return {r.name: int(r.status().get("gaps", 0)) for r in self._running}

    def silence(self) -> str:
        """A sentence where some meter is not being recorded, else nothing."""
        return next((said for r in self._running if (said := r.silence())), "")

    def tend(self) -> None:
        """Start again what has ended, but not without room, nor more often than makes sense."""
        for recorder in self._running:
            if recorder.ended and self._may_start(recorder.name):
                self._note(
                    f"the recorder of meter {recorder.name} ended ({recorder.last_words()}) "
                    "and is started again"
                )
                recorder.start(wait=True)

    def _may_start(self, name: str) -> bool:
        now_s = time.monotonic()
        starts = self._starts.setdefault(name, deque(maxlen=MOST_STARTS_AN_HOUR))
        if starts and now_s - starts[-1] < PAUSE_S:
            return False
        if len(starts) == MOST_STARTS_AN_HOUR and now_s - starts[0] < HOUR_S:
            return False
        if hold.lack_of_room(self._suite_dir):
            return False
        starts.append(now_s)
        return True

    def stop(self) -> None:
        """End all recorders in order; what they have written is whole."""
        with uninterrupted():
            for recorder in self._running:
                recorder.tell_to_stop()
            for recorder in self._running:
                recorder.wait_for_end()
        self._running.clear()


def _wait_until_heard(recorder: RecorderProcess, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while recorder.status().get("state") != "recording":
        if recorder.ended:
            raise ControllerError(
                f"The recorder of meter {recorder.name} ended: {recorder.last_words()}"
            )
        if time.monotonic() > deadline:
            raise ControllerError(
                f"The recorder of meter {recorder.name} heard nothing in {limit_s:.0f} s and did "
                "not say why: end what else uses the port, and start again."
            )
        time.sleep(POLL_S)


def _require_apart(names: Sequence[str]) -> None:
    """A meter called as the second folder of another would share it."""
    for name in names:
        for other in names:
            if re.fullmatch(re.escape(other) + r"\.[0-9]+", name):
                raise ControllerError(
                    f"The meters {other} and {name} cannot be told apart when the controller is "
                    "restarted: give one another name in the inventory."
                )
