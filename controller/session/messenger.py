"""Send a session's messages to the receivers of its inventory, without delaying the session."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from contract.messages import EventCode, Message, Notify, Receiver
from contract.plan import TargetDocument
from contract.status import SuiteStatus
from controller.session.delivery import deliver
from controller.session.progress_text import utc

log = logging.getLogger(__name__)

MOST_WAITING = 32
CLOSE_S = 10.0  # for all messages that are still to be delivered at the end
PATIENT_WAITS = frozenset({"load", "temperature", "disk-temperature"})  # ordinary ones
PROMPT_S = 15.0  # all other waits are reported after this time
PAUSE_S = 300.0


class _Mailbox:
    """A receiver's queue and the thread that empties it; messages that do not fit are dropped."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._queue: queue.Queue[Message | None] = queue.Queue(MOST_WAITING)
        self._lock = threading.Lock()
        self._failed = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        if not self._receiver.events or message.event in self._receiver.events:
            try:
                self._queue.put_nowait(message)
            except queue.Full:
                self._note(message, "its queue is full")

    def close(self, deadline_s: float) -> None:
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(max(0.0, deadline_s - time.monotonic()))

    def _work(self) -> None:
        while message := self._queue.get():
            if reason := deliver(self._receiver, message):
                self._note(message, reason)
            else:
                self._failed = False

    def _note(self, message: Message, reason: str) -> None:
        """Log a failure, once until a message is delivered again."""
        with self._lock:
            was_logged, self._failed = self._failed, True
        if not was_logged:
            log.warning("%s did not get %s: %s", self._receiver.name, message.event, reason)


def send_tests(target: TargetDocument) -> Iterator[tuple[str, str]]:
    """Send a test to every receiver of a target; yield its name and why that failed, if it did."""
    wall = utc(datetime.now(UTC))
    message = Message("fde-message/1", "test", "", target.host, "a test by fde notify", wall)
    for receiver in target.notify.receivers:
        yield receiver.name, deliver(receiver, message, verbose=True)


class Messenger:
    """A context that sends a suite's messages; leaving it by an error sends that error."""

    def __init__(self, suite_id: str, target: TargetDocument) -> None:
        self._suite_id, self._host = suite_id, target.host
        self._settings = target.notify
        self._boxes = [_Mailbox(receiver) for receiver in target.notify.receivers]
        self._status: SuiteStatus | None = None
        self._present: set[EventCode] = set()
        self._sent_s: dict[EventCode, float] = {}

    def __enter__(self) -> Messenger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        if kind is not None:
            stopped = issubclass(kind, KeyboardInterrupt)
            hint = "fde resume continues with it"
            self.send("stopped" if stopped else "failed", hint if stopped else str(error))
        deadline_s = time.monotonic() + CLOSE_S
        for box in self._boxes:
            box.close(deadline_s)

    def send(self, event: EventCode, sentence: str) -> None:
        """Queue a message for every receiver that has subscribed to its event."""
        suite, wall = (self._suite_id, self._host), utc(datetime.now(UTC))
        message = Message("fde-message/1", event, *suite, sentence, wall, self._status)
        for box in self._boxes:
            box.put(message)

    def observe(self, status: SuiteStatus, alarms: Mapping[EventCode, str]) -> None:
        """Send the events that hold now and did not before; the same one once in `PAUSE_S`."""
        present = {**alarms, **conditions(status, self._settings, self._status)}
        self._status = status
        self._present &= present.keys()
        now_s = time.monotonic()
        for event in present.keys() - self._present:
            if now_s - self._sent_s.get(event, -PAUSE_S) >= PAUSE_S:
                self._present.add(event)
                self._sent_s[event] = now_s
                self.send(event, present[event])


def conditions(
    status: SuiteStatus, settings: Notify, before: SuiteStatus | None = None
) -> dict[EventCode, str]:
    """Return the events that a status shows, by code with sentences; `before` is the last one."""
    present: dict[EventCode, str] = {}
    limit_s = settings.waiting_s if status.waiting_for in PATIENT_WAITS else PROMPT_S
    if status.waiting and status.since_s >= limit_s:
        present["waiting"] = f"waiting: {status.waiting}"
    if status.void_in_a_row >= settings.void_runs:
        present["void-runs"] = f"{status.void_in_a_row} runs in a row were void"
    if before and status.interrupted > before.interrupted:
        present["interrupted"] = "the target or its agent was started again; a run is repeated"
    if status.state == "suite-finished":
        present["finished"] = f"{status.finished} of {status.runs} runs finished"
    return present
