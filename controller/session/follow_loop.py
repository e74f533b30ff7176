"""The journal of a running suite over a link that may drop, and what a session does meanwhile."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from contract.errors import ControllerError
from contract.journal import BEGUN, Entry
from contract.plan import Plan, TargetDocument
from controller.session.agent_client import AgentClient
from controller.session.ending import Ending
from controller.session.hang_watch import HangWatch
from controller.session.journal_link import LinkEvents, LinkMonitor, follow, follow_command
from controller.session.recorders import Recorders
from controller.session.running_answer import RunningAnswers
from controller.session.secrets_delivery import SecretsDelivery
from controller.session.status import Board
from instrumentation.clock_link import ClockLink, keep_measuring

log = logging.getLogger(__name__)


CLOCK_PERIOD_S = 30.0
MOST_STARTS = 3


class FollowLoop:
    """From the agent's start to its closing line, whatever happens to link, target and meters."""

    def __init__(
        self,
        plan: Plan,
        target: TargetDocument,
        agent: AgentClient,
        board: Board,
        recorders: Recorders,
        *,
        ending: Ending,
        answers: RunningAnswers | None = None,
        hangs: HangWatch | None = None,
    ) -> None:
        self._plan = plan
        self._target = target
        self._agent = agent
        self._board = board
        self._recorders = recorders
        self._ending = ending
        self._answers = answers
        self._hangs = hangs
        self._heard_s = time.monotonic()
        self._link = LinkMonitor(board.warn)
        self._secrets = SecretsDelivery(target, board.warn)
        self._starts = 0

    def follow(self, known: Sequence[Entry]) -> Entry:
        """Show progress until the suite has ended; the journal's last line.

        Raises ControllerError where the service died and does not start again.
        """
        entries = list(known)
        command = partial(follow_command, self._target, self._plan.suite_id)
        events = LinkEvents(self._link.dropped, self._link.up, self._abandoned)
        if self._answers:
            events = replace(events, record=self._answers.record)
        limits = {
            "most_bytes": self._plan.most_journal_bytes,
            "most_record_bytes": self._plan.most_result_bytes,
        }
        stop = threading.Event()
        for entry in follow(command, events, start=len(known), stop=stop, **limits):
            self._recorders.tend()
            if entry is not None:
                self._heard_s = time.monotonic()
            if self._hangs:
                at_work = entries and entries[-1].state in BEGUN
                working_s = time.monotonic() - self._heard_s if at_work else 0.0
                self._hangs.observe(self._link.lost_s, working_s)
            watts, gaps = self._recorders.watts(), self._recorders.gaps()
            if entry is None:
                self._link.tick()
                self._board.tick(watts, gaps)
            else:
                entries.append(entry)
                self._board.entry(entries, watts, gaps)
                if self._answers:
                    self._answers.entry(entries)
            if self._answers and (answer := self._answers.poll()):
                self._board.answer(answer)
            self._ending.follow(entries, reached=not self._link.gone)
            if not self._link.gone and not self._ending.unsent:
                self._secrets.look(entries[-1] if entries else None)
        return entries[-1]

    def _abandoned(self, reason: str) -> None:
        """Wait for systemd, start the service, or give up where no agent is at work."""
        unit = self._agent.unit()
        if unit is None or unit.active or unit.starting:
            return
        if not unit.failed and self._starts < MOST_STARTS:
            self._starts += 1
            self._board.warn(f"{reason} Its service is started again")
            self._agent.start()
            return
        raise ControllerError(
            "agent-ended", host=self._plan.host, output=unit.last_words or "no output"
        )

    @contextmanager
    def clock(self, link: ClockLink) -> Iterator[None]:
        """Take clock readings every 30 s, in a separate thread, and one more at the end."""
        stop = threading.Event()

        def lost(reason: str) -> None:
            if not self._link.gone:
                self._board.warn(reason)

        thread = threading.Thread(target=keep_measuring, args=(link, CLOCK_PERIOD_S, stop, lost))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        keep_measuring(link, CLOCK_PERIOD_S, stop, lost)  # once more, for `stop` is set
