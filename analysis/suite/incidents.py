"""Interruptions of a suite by its journal and its meters: facts, without any judgement.

Times in the journal are the target's, so that a span across a boot has no length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.suite.documents import read_lines
from analysis.suite.records import Suite
from analysis.suite.samples import EPOCHS, Samples
from contract.attempts import NS, Attempt, History, spans
from contract.documents import SessionLine
from contract.journal import INTERRUPTIONS, SKIPPED, TERMINAL, Entry
from instrumentation.clock import ClockReading

# A longer silence of a meter is a pause.
BREAK_WINDOWS, BREAK_NS = 30, 5_000_000_000
LINK_S = 60.0  # twice as long as from one look at the target's clock to the next


@dataclass(frozen=True)
class Pause:
    """All silences of a meter or of the link, or all waits of the agent for one cause.

    Waits that a boot ended are counted without their length.
    """

    name: str
    times: int
    seconds: float


def link_pauses_s(readings: Iterable[ClockReading], journal: Iterable[Entry]) -> list[float]:
    """Return how long the link did not answer while the agent worked by its journal, in s."""
    at_work = _at_work(journal)
    lengths: list[float] = []
    last: dict[str, ClockReading] = {}
    for reading in readings:
        boot = reading.controller_boot_id
        before = last.get(boot, reading)
        pause_ns = reading.t_send_ns - before.t_receive_ns
        begin_ns = before.t_target_ns
        worked_ns = sum(
            max(0, min(begin_ns + pause_ns, end) - max(begin_ns, start))
            for start, end in at_work.get(before.boot_id, [])
        )
        if worked_ns > LINK_S * NS:
            lengths.append(pause_ns / NS)
        last[boot] = reading
    return lengths


def _at_work(journal: Iterable[Entry]) -> dict[str, list[tuple[int, int]]]:
    """Return the spans in which the agent worked, by boot of the target and on its clock."""
    spans_by_boot: dict[str, list[tuple[int, int]]] = {}
    closed = True
    for entry in journal:
        spans = spans_by_boot.setdefault(entry.boot_id, [])
        if closed or not spans:
            spans.append((entry.t_mono_ns, entry.t_mono_ns))
        spans[-1] = spans[-1][0], entry.t_mono_ns
        closed = entry.state in TERMINAL
    return spans_by_boot


def pauses_s(samples: Samples) -> list[float]:
    """Return pauses between records that are longer than any bunch, or in which a port reopened.

    Pauses between boots of the controller are left out: their length may be unknown.
    """
    pauses: list[float] = []
    last: tuple[int, int] | None = None
    for table in samples.tables(["t_mono_ns", "window_s", "epoch"]):
        arrival = table["t_mono_ns"].to_numpy()
        epoch = table["epoch"].to_numpy().astype(np.int64)
        first = last or (int(arrival[0]), int(epoch[0]))
        pause = np.diff(arrival, prepend=first[0])
        longest = np.maximum(BREAK_NS, table["window_s"].to_numpy() * BREAK_WINDOWS * NS)
        same = np.diff(epoch // EPOCHS, prepend=first[1] // EPOCHS) == 0
        opened = np.diff(epoch, prepend=first[1]) != 0
        pauses += (pause[((pause > longest) | opened) & same] / NS).tolist()
        last = int(arrival[-1]), int(epoch[-1])
    return pauses


@dataclass(frozen=True)
class VoidTries:
    """The tries that were void for one reason, in the words of one of them."""

    reason: str
    tries: int


@dataclass(frozen=True)
class IncidentLog:
    """All that the journal has besides the runs that finished at once.

    The agent's starts after the first are `reboots` in a new boot of the target, `restarts` in
    the same boot, or `resumed` after the suite had been closed. `interrupted` tries were cut
    short, `repeated` runs were made again. `ended` if the last line closes the suite. `killed`
    sessions of the controller did not end in order.
    """

    reboots: int = 0
    restarts: int = 0
    resumed: int = 0
    interrupted: int = 0
    voids: tuple[VoidTries, ...] = ()
    repeated: int = 0
    waits: tuple[Pause, ...] = ()
    never: int = 0
    void_to_end: tuple[str, ...] = ()
    ended: bool = False
    failed: str = ""
    killed: int = 0
    controller_boots: int = 1
    controller_sleeps: int = 0
    silences: tuple[Pause, ...] = ()
    unlinked: tuple[Pause, ...] = ()

    @property
    def tries_void(self) -> int:
        return sum(group.tries for group in self.voids)


def incident_log(suite: Suite) -> IncidentLog:
    """Return the incidents of a suite; this reads all times of all meters."""
    attempts = History(suite.journal).attempts
    starts = Counter(_starts(suite.journal))
    causes = [attempt.void.cause for attempt in attempts if attempt.void]
    begun = {run.run_id for run in suite.runs}
    begun |= {run.run_id for run in (*suite.void, *suite.skipped)}
    last = suite.journal[-1] if suite.journal else None
    waits_s: dict[str, list[float]] = {}  # by cause; a wait that a boot ended has no length
    seconds_after = [*(span.seconds for span in spans(suite.journal)), None]
    for entry, seconds in zip(suite.journal, seconds_after, strict=False):
        if entry.state == "waiting":
            waits_s.setdefault(entry.cause, []).append(max(0.0, seconds or 0.0))
    silences = [(meter.name, pauses_s(meter.samples)) for meter in suite.meters]
    unlinked_s = link_pauses_s(suite.clock, suite.journal)
    return IncidentLog(
        reboots=starts["reboot"],
        restarts=starts["restart"],
        resumed=starts["resumed"],
        repeated=_repeated(attempts),
        interrupted=sum(cause in INTERRUPTIONS for cause in causes),
        voids=tuple(_group_voids(attempts)),
        waits=tuple(Pause(cause, len(waits), sum(waits)) for cause, waits in waits_s.items()),
        never=sum(run.run_id not in begun for run in suite.plan.runs),
        void_to_end=tuple(run.run_id for run in suite.void),
        ended=last is not None and last.state == "suite-finished",
        failed=last.detail if last is not None and last.state == "suite-failed" else "",
        killed=_killed_sessions(suite),
        controller_boots=suite.controller_boots,
        controller_sleeps=suite.controller_sleeps,
        silences=tuple(Pause(name, len(s), sum(s)) for name, s in silences if s),
        unlinked=tuple(Pause("", len(s), sum(s)) for s in [unlinked_s] if s),
    )


def _killed_sessions(suite: Suite) -> int:
    """Count the controller's sessions that did not end in order, but for one still at work."""
    begun, ended = [], set()
    for line in read_lines(SessionLine, suite.folder / "sessions.jsonl", []):
        key = (line.controller_boot_id, line.begun_ns)
        if line.wall_s is None:
            begun.append(key)
        else:
            ended.add(key)
    killed = [key for key in begun if key not in ended]
    at_work = bool(killed) and killed[-1] == begun[-1] and not suite.sealed
    return len(killed) - at_work


def _starts(entries: Sequence[Entry]) -> Iterator[Literal["resumed", "reboot", "restart"]]:
    """Yield the kind of each start of the agent after the first."""
    started = True  # in the line before
    for span in spans(entries):
        if span.starting and (not started or span.entry.state == "suite-started"):
            if span.entry.state in TERMINAL:
                yield "resumed"
            else:
                yield "reboot" if span.seconds is None else "restart"
        started = span.starting


def _repeated(attempts: Sequence[Attempt]) -> int:
    """Count the attempts that began after an earlier one of the same run was void."""
    repeated, voided = 0, set()
    for attempt in attempts:
        if attempt.begun:
            repeated += attempt.run_id in voided
            voided.discard(attempt.run_id)
        if attempt.void and attempt.void.cause != SKIPPED:
            voided.add(attempt.run_id)
    return repeated


def _group_voids(attempts: Iterable[Attempt]) -> Iterator[VoidTries]:
    """Group void tries by their reason, ignoring figures in it; the most frequent first."""
    groups: dict[str, list[str]] = {}
    apart = INTERRUPTIONS | {SKIPPED}
    for void in (a.void for a in attempts if a.void and a.void.cause not in apart):
        reason = void.detail or "no reason given"
        groups.setdefault(re.sub(r"\d+(\.\d+)?", "#", reason), []).append(reason)
    for reasons in sorted(groups.values(), key=len, reverse=True):
        yield VoidTries(reasons[-1], len(reasons))
