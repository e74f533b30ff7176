"""Follow the journal of a running suite over a link that may drop, and react to each line."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from contract.errors import ControllerError
from contract.journal import Entry
from contract.plan import Plan, TargetDocument
from controller.session.agent_client import AgentClient
from controller.session.ending import Ending
from controller.session.journal_link import LinkEvents, LinkMonitor, follow, follow_command
from controller.session.progress_text import minutes
from controller.session.recorders import Recorders
from controller.session.running_answer import RunningAnswers
from controller.session.secrets_delivery import SecretsDelivery
from controller.session.status import Board
from instrumentation.clock_link import ClockLink, keep_measuring

CLOCK_PERIOD_S = 30.0
MOST_STARTS = 3


@dataclass
class FollowLoop:
    """Follow a suite from the agent's start to its last line, across failures of link and target.

    Without `answers` no running answer is computed.
    """

    plan: Plan
    target: TargetDocument
    agent: AgentClient
    board: Board
    recorders: Recorders
    ending: Ending
    answers: RunningAnswers | None = None

    def __post_init__(self) -> None:
        self._link = LinkMonitor(self.board.warn)
        self._secrets = SecretsDelivery(self.target, self.board.warn)
        self._starts = 0

    def follow(self, old_entries: Sequence[Entry]) -> Entry:
        """Show progress until the suite has ended; return the journal's last line.

        Raises ControllerError if the service died and does not start again.
        """
        entries = list(old_entries)
        command = partial(follow_command, self.target, self.plan.suite_id)
        events = LinkEvents(self._link.dropped, self._link.up, self._abandoned)
        if self.answers:
            events = replace(events, record=self.answers.record)
        limits = {
            "most_bytes": self.plan.most_journal_bytes,
            "most_record_bytes": self.plan.most_result_bytes,
        }
        stop = threading.Event()
        for entry in follow(command, events, start=len(entries), stop=stop, **limits):
            self.recorders.tend()
            silent = f"the target has been silent for {minutes(self._link.lost_s)}"
            self.board.alarm("target-lost", silent if self._link.gone else "")
            self.board.watts, self.board.gaps = self.recorders.watts(), self.recorders.gaps()
            if entry is None:
                self._link.tick()
                self.board.tick()
            else:
                entries.append(entry)
                self.board.entry(entries)
                if self.answers:
                    self.answers.entry(entries)
            if self.answers and (answer := self.answers.poll()):
                self.board.answer(answer)
            self.ending.follow(entries, reached=not self._link.gone)
            if not self._link.gone and not self.ending.unsent:
                self._secrets.look(entries[-1] if entries else None)
        return entries[-1]

    def _abandoned(self, reason: str) -> None:
        """React to a follower that finds no agent: wait for systemd, start the service or fail."""
        unit = self.agent.unit()
        if unit is None or unit.active or unit.starting:
            return
        if not unit.failed and self._starts < MOST_STARTS:
            self._starts += 1
            self.board.warn(f"{reason} Its service is started again")
            self.agent.start()
            return
        raise ControllerError(
            "agent-ended", host=self.plan.host, output=unit.last_words or "no output"
        )

    @contextmanager
    def clock(self, link: ClockLink) -> Iterator[None]:
        """Take clock readings every 30 s in a separate thread, and a last one at the end."""
        stop = threading.Event()

        def lost(reason: str) -> None:
            if not self._link.gone:
                self.board.warn(reason)

        thread = threading.Thread(target=keep_measuring, args=(link, CLOCK_PERIOD_S, stop, lost))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        keep_measuring(link, CLOCK_PERIOD_S, stop, lost)  # one reading only, because `stop` is set
