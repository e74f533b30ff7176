"""What a session does while the agent works: it follows, tends, delivers and waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from contract.errors import ControllerError
from contract.journal import Entry
from contract.plan import Plan
from controller import remote
from controller.delivery import Delivery
from controller.follow import Heard, follow
from controller.orders import Orders
from controller.recorders import Recorders
from controller.status import Board
from controller.word import Word
from instrumentation.clock_link import ClockLink, keep_measuring

CLOCK_PERIOD_S = 30.0
MOST_STARTS = 3


class Night:
    """From the agent's start to its closing line, whatever happens to link, target and meters."""

    def __init__(
        self,
        plan: Plan,
        target: Mapping[str, Any],
        orders: Orders,
        board: Board,
        recorders: Recorders,
    ) -> None:
        self._plan = plan
        self._target = target
        self._orders = orders
        self._board = board
        self._recorders = recorders
        self._word = Word(board.note)
        self._delivery = Delivery(dict(target), board.note)
        self._starts = 0

    def follow(self, known: Sequence[Entry]) -> Entry:
        """Show progress until the suite has ended; the journal's last line.

        Raises ControllerError where the service died and does not start again.
        """
        entries = list(known)
        path = remote.suite_dir(self._plan.suite_id)

        def command(start: int) -> list[str]:
            arguments = ("-m", "agent", "follow", "--suite-dir", path, "--from", str(start))
            return remote.python(self._target, *arguments)

        heard = Heard(self._word.dropped, self._word.up, self._abandoned)
        for entry in follow(command, heard, start=len(known), stop=threading.Event()):
            self._recorders.tend()
            watts, gaps = self._recorders.watts(), self._recorders.gaps()
            if entry is None:
                self._word.tick()
                self._board.tick(watts, gaps)
            else:
                entries.append(entry)
                self._board.entry(entries, watts, gaps)
            if not self._word.gone:
                self._delivery.look(entries[-1] if entries else None)
        return entries[-1]

    def _abandoned(self, said: str) -> None:
        """Nobody works on the suite: wait for systemd, start the service, or give up."""
        unit = self._orders.unit()
        if unit is None or unit.active or unit.starting:
            return
        if not unit.failed and self._starts < MOST_STARTS:
            self._starts += 1
            self._board.note(f"{said} Its service is started again")
            self._orders.start()
            return
        raise ControllerError(
            f"The agent on {self._plan.host} ended without closing its journal "
            f"({unit.last_words or 'it said nothing'}): go on with make resume."
        )

    @contextmanager
    def clock(self, link: ClockLink) -> Iterator[None]:
        """Clock readings every 30 s, in a thread of their own, and one more at the end."""
        stop = threading.Event()

        def lost(reason: str) -> None:
            if not self._word.gone:
                self._board.note(reason)

        thread = threading.Thread(target=keep_measuring, args=(link, CLOCK_PERIOD_S, stop, lost))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        keep_measuring(link, CLOCK_PERIOD_S, stop, lost)  # once more, for `stop` is set
