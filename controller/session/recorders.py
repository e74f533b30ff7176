"""Start, watch and stop the recorders of a suite: one process for each meter."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from agent.system import lock
from contract import schema, strict_json
from contract.documents import RecorderStatus
from contract.errors import ControllerError
from contract.interrupts import uninterrupted
from contract.journal import boot_id
from contract.places import module_command
from contract.plan import MeterEntry
from contract.strict_json import read_object
from controller.session.suite_folder import lack_of_room
from instrumentation.clock import monotonic_ns

POLL_S = 0.1
STOP_LIMIT_S = 15.0
# A recorder continues for a day without the session that started it, until the suite is resumed.
OUTLIVE_S = 24 * 3600
# A recorder reports its state twice a second; one that has not for that long hangs or cannot write.
STALE_NS = 10 * 10**9
HUNG_NS = 60 * 10**9


@dataclass
class RecorderProcess:
    """The recorder of one meter into one folder; its last status is in a file."""

    meter: MeterEntry
    folder: Path
    status_file: Path
    _process: subprocess.Popen[bytes] | None = None
    _output: int = -1

    @property
    def name(self) -> str:
        """The meter's name."""
        return self.meter.name

    def start(self, *, wait: bool = False) -> None:
        """Start it; with `wait` it waits for a meter that was heard before. Raises OSError."""
        self.status_file.parent.mkdir(parents=True, exist_ok=True)
        self.status_file.unlink(missing_ok=True)  # an earlier recorder's still says "recording"
        argv = module_command("instrumentation.recorder")
        argv += ["--meter", json.dumps(schema.write(self.meter))]
        argv += ["--out", str(self.folder), "--status", str(self.status_file)]
        argv += ["--outlive", str(OUTLIVE_S), *(["--wait"] if wait else [])]
        if self._output >= 0:
            os.close(self._output)
        # Neither a pipe, which breaks with us, nor a file on a disk that may be full.
        self._output = os.memfd_create(f"recorder-{self.name}")
        # In a separate session: Ctrl-C must not end it before the suite is stopped.
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._output,
            start_new_session=True,
        )

    @property
    def ended(self) -> bool:
        """Whether the process has ended or was not started."""
        return self._process is None or self._process.poll() is not None

    def end_if_hung(self) -> bool:
        """Kill it if it has reported nothing for long; return whether it was killed."""
        status = self.status()
        if self.ended or not status or monotonic_ns() - status.t_mono_ns < HUNG_NS:
            return False
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        return True

    def status(self) -> RecorderStatus | None:
        """Return its last status; None if that is unknown."""
        return strict_json.load(RecorderStatus, self.status_file)

    def silence(self) -> str:
        """Return why nothing of the meter is being recorded; empty if it is recorded."""
        status = self.status()
        now_ns = monotonic_ns()
        if self.ended or not status or now_ns - status.t_mono_ns > STALE_NS:
            return f"the recorder of meter {self.name} is not at work"
        if status.state == "full":
            return f"the recorder of meter {self.name} has no room on its disk"
        limit_ns = (3 / status.due_hz + 2) * 1e9
        if status.state != "recording" or now_ns - status.t_record_ns > limit_ns:
            return f"meter {self.name} is silent"
        return ""

    def last_output(self) -> str:
        """Return the last line that it printed before it ended."""
        output = os.pread(self._output, 1 << 16, 0).decode(errors="replace").strip()
        return output.splitlines()[-1].removeprefix("fde: ") if output else "it gave no reason"

    def wait_until_heard(self, limit_s: float) -> None:
        """Wait until the meter is being recorded. Raises ControllerError if that fails."""
        deadline = time.monotonic() + limit_s
        while (status := self.status()) is None or status.state != "recording":
            if self.ended:
                output = self.last_output()
                raise ControllerError("recorder-ended", meter=self.name, output=output)
            if time.monotonic() > deadline:
                raise ControllerError("meter-silent", meter=self.name, limit_s=limit_s)
            time.sleep(POLL_S)

    def terminate(self) -> None:
        """Request that it ends in order; `wait_for_end` waits for that."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait_for_end(self) -> None:
        """Wait until it has ended and all that it wrote is complete."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def end_leftovers(suite_dir: Path) -> list[str]:
    """End recorders that outlived their session, in order; return the names of their folders.

    Raises ControllerError if one cannot be ended.
    """
    ended = []
    for folder in sorted((suite_dir / "meters").glob("*/")):
        pid = lock.holder(folder)
        if pid is None:
            continue
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
            except PermissionError:
                raise ControllerError("recorded-by-other", folder=folder, pid=pid) from None
            deadline = time.monotonic() + STOP_LIMIT_S
            while (is_recorded := lock.holder(folder) is not None) and time.monotonic() <= deadline:
                time.sleep(POLL_S)
            if not is_recorded:
                break
        else:
            raise ControllerError("still-recorded", folder=folder, pid=pid)
        ended.append(folder.name)
    return ended


# A recorder gives up earlier and says why: it waits for a few periods of its meter, and some
# seconds to find out what else is connected.
START_LIMIT_S = 60.0
START_LIMIT_PERIODS = 10
MOST_STARTS_AN_HOUR = 20
PAUSE_S = 1.0
HOUR_S = 3600.0


def start_limit_s(meter: MeterEntry) -> float:
    """Return how long a meter may take until it is heard. Raises ControllerError if it is wrong."""
    # Imports NumPy: not at the start of every command.
    from instrumentation.recorder_port import RecorderError, check_meter, driver_of

    try:
        driver = driver_of(check_meter(meter))
    except RecorderError as error:
        raise ControllerError(error) from None
    return START_LIMIT_S + START_LIMIT_PERIODS * driver.period_s


def folder_for(name: str, meters: Path) -> Path:
    """Return the folder in which this boot of the controller, with its clock, records a meter.

    `meters/<name>`, or the first of `<name>.2`, `<name>.3` … of this boot or not yet existing.
    """
    number = 1
    while True:
        folder = meters / (name if number == 1 else f"{name}.{number}")
        if read_object(folder / "meter.json").get("controller_boot_id", boot_id()) == boot_id():
            return folder
        number += 1


class Recorders:
    """A context in which every meter is recorded below `suite_dir/meters`.

    Entering ends the recorders that a killed session left behind, and returns once all meters are
    heard. Raises ControllerError if one is silent.
    """

    def __init__(
        self,
        meters: Sequence[MeterEntry],
        suite_dir: Path,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._meters = meters
        self._suite_dir = suite_dir
        self._note = note
        self._running: list[RecorderProcess] = []
        self._starts: dict[str, deque[float]] = {}

    def __enter__(self) -> Recorders:
        for meter, other in permutations(self._meters, 2):
            # It would share the second folder of the other.
            if re.fullmatch(re.escape(other.name) + r"\.[0-9]+", meter.name):
                raise ControllerError("meters-too-alike", meter=other.name, other=meter.name)
        limits_s = {meter.name: start_limit_s(meter) for meter in self._meters}
        if ended := end_leftovers(self._suite_dir):
            self._note(f"ended what still recorded for an earlier session: {', '.join(ended)}")
        try:
            for meter in self._meters:
                folder = folder_for(meter.name, self._suite_dir / "meters")
                status_file = self._suite_dir / "status" / "meters" / f"{meter.name}.json"
                self._running.append(RecorderProcess(meter, folder, status_file))
                self._running[-1].start()
            for recorder in self._running:
                recorder.wait_until_heard(limits_s[recorder.name])
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def watts(self) -> dict[str, float]:
        """Return the latest power by channel, in watts."""
        return {
            channel: power_w
            for recorder in self._running
            if (status := recorder.status())
            for channel, power_w in status.watts.items()
        }

    def gaps(self) -> dict[str, int]:
        """Return the number of gaps that each meter's current recorder has seen."""
        return {r.name: status.gaps if (status := r.status()) else 0 for r in self._running}

    def silence(self) -> str:
        """Return why some meter is not being recorded; empty if all are."""
        return next((sentence for r in self._running if (sentence := r.silence())), "")

    def tend(self) -> None:
        """Restart recorders that have ended or hang, if the disk has room and not too often."""
        for recorder in self._running:
            if not lack_of_room(self._suite_dir) and recorder.end_if_hung():
                self._note(f"the recorder of meter {recorder.name} hung and was ended")
            if recorder.ended and self._may_start(recorder.name):
                self._note(
                    f"the recorder of meter {recorder.name} ended ({recorder.last_output()}) "
                    "and is started again"
                )
                recorder.start(wait=True)

    def _may_start(self, name: str) -> bool:
        now_s = time.monotonic()
        starts = self._starts.setdefault(name, deque(maxlen=MOST_STARTS_AN_HOUR))
        is_early = starts and now_s - starts[-1] < PAUSE_S
        is_often = len(starts) == MOST_STARTS_AN_HOUR and now_s - starts[0] < HOUR_S
        if is_early or is_often or lack_of_room(self._suite_dir):
            return False
        starts.append(now_s)
        return True

    def stop(self) -> None:
        """End all recorders in order, with all that they wrote complete."""
        with uninterrupted():
            for recorder in self._running:
                recorder.terminate()
            for recorder in self._running:
                recorder.wait_for_end()
        self._running.clear()
