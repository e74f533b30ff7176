"""What interrupted a suite, by its journal and its meters: the facts, without any judgement.

Starts of the agent, boots, interruptions, tries that counted for nothing, repetitions and waits;
times of the journal are the target's, so that a span across a boot has no length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.suite.documents import read_lines
from analysis.suite.records import Suite
from analysis.suite.samples import EPOCHS, Samples
from contract.attempts import NS, Attempt, History, spans
from contract.documents import PowerLine, SessionLine
from contract.journal import INTERRUPTIONS, SKIPPED, TERMINAL, Entry
from instrumentation.clock import ClockReading

# A meter's silence after which its records count as a new stretch.
BREAK_WINDOWS, BREAK_NS = 30, 5_000_000_000
LINK_S = 60.0  # twice as long as from one look at the target's clock to the next


@dataclass(frozen=True)
class Silence:
    """Stretches of a meter's recordings, or of the link, without a record.

    Those at which the port was opened again among them; the link to the target has no meter's name.
    """

    meter: str
    times: int
    seconds: float


def _silence(name: str, lengths_s: Sequence[float]) -> Silence | None:
    return Silence(name, len(lengths_s), sum(lengths_s)) if lengths_s else None


def link_silence(readings: Iterable[ClockReading], journal: Iterable[Entry]) -> Silence | None:
    """Find when the link did not answer while the agent was at work by its journal.

    None without any such time.
    """
    at_work = _at_work(journal)
    lengths: list[float] = []
    last: dict[str, ClockReading] = {}
    for reading in readings:
        boot = reading.controller_boot_id
        before = last.get(boot, reading)
        pause_ns = reading.t_send_ns - before.t_receive_ns
        here = before.t_target_ns, before.t_target_ns + pause_ns
        worked_ns = sum(
            max(0, min(here[1], end) - max(here[0], start))
            for start, end in at_work.get(before.boot_id, [])
        )
        if worked_ns > LINK_S * NS:
            lengths.append(pause_ns / NS)
        last[boot] = reading
    return _silence("", lengths)


def _at_work(journal: Iterable[Entry]) -> dict[str, list[tuple[int, int]]]:
    """By boot of the target, from the agent's starts to the closing or last lines, in its time."""
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
    """Return stretches between records longer than any bunch, and those of a reopened port.

    Not from boot to boot of the controller, whose distance need not be known.
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
    """Tries that were void for one reason (an example of its words)."""

    reason: str
    tries: int


@dataclass(frozen=True)
class Wait:
    """What the agent waited for, by its cause: how often, and how long in all.

    Waits that a boot ended are counted without their length.
    """

    cause: str
    times: int
    seconds: float


@dataclass(frozen=True)
class IncidentLog:
    """All that the journal has besides the runs that finished at once.

    `starts` of the agent: of those after the first, `reboots` came with a new boot of the target,
    `restarts` in the same boot, `resumed` after the suite had been closed. Tries that were cut
    short are `interrupted`, runs that were made again `repeated`. `ended`: the last line of all
    closes the suite. Of the controller's `sessions`, `killed` ones did not end in order. It
    switched the target off and on `power_cycles` times.
    """

    starts: int = 0
    boots: int = 0
    reboots: int = 0
    restarts: int = 0
    resumed: int = 0
    interrupted: int = 0
    voids: tuple[VoidTries, ...] = ()
    repeated: int = 0
    waits: tuple[Wait, ...] = ()
    never: int = 0
    void_to_end: tuple[str, ...] = ()
    ended: bool = False
    failed: str = ""
    sessions: int = 1
    killed: int = 0
    power_cycles: int = 0
    controller_boots: int = 1
    controller_sleeps: int = 0
    silences: tuple[Silence, ...] = ()
    unlinked: Silence | None = None

    @property
    def tries_void(self) -> int:
        return sum(group.tries for group in self.voids)

    @property
    def quiet(self) -> bool:
        """Nothing was interrupted and nothing had to be waited for."""
        return not (
            self.reboots + self.restarts + self.resumed + self.tries_void + self.never
            or self.interrupted
            or self.waits
            or self.void_to_end
            or self.silences
            or self.unlinked
            or self.sessions > 1
            or self.killed
            or self.power_cycles
            or self.controller_boots > 1
            or self.controller_sleeps
            or not self.ended
        )


def incident_log(suite: Suite) -> IncidentLog:
    """Return the facts of a suite; reads all times of all meters."""
    attempts = History(suite.journal).attempts
    starts, resumed, reboots, restarts = _starts(suite.journal)
    causes = [attempt.void.cause for attempt in attempts if attempt.void]
    known = {run.run_id for run in suite.runs}
    known |= {run.run_id for run in (*suite.void, *suite.skipped)}
    last = suite.journal[-1] if suite.journal else None
    begun, killed = _sessions(suite)
    silences = (_silence(meter.name, pauses_s(meter.samples)) for meter in suite.meters)
    return IncidentLog(
        starts=starts,
        reboots=reboots,
        restarts=restarts,
        resumed=resumed,
        repeated=_repeated(attempts),
        boots=len({entry.boot_id for entry in suite.journal}),
        interrupted=sum(cause in INTERRUPTIONS for cause in causes),
        voids=tuple(_grouped(attempts)),
        waits=tuple(_waits(suite.journal)),
        never=sum(run.run_id not in known for run in suite.plan.runs),
        void_to_end=tuple(run.run_id for run in suite.void),
        ended=last is not None and last.state == "suite-finished",
        failed=last.detail if last is not None and last.state == "suite-failed" else "",
        sessions=max(1, begun),
        killed=killed,
        power_cycles=sum(1 for _ in read_lines(PowerLine, suite.folder / "power.jsonl", [])),
        controller_boots=suite.controller_boots,
        controller_sleeps=suite.controller_sleeps,
        silences=tuple(silence for silence in silences if silence is not None),
        unlinked=link_silence(suite.clock, suite.journal),
    )


def _sessions(suite: Suite) -> tuple[int, int]:
    """How many sessions of the controller there were, and how many did not end in order.

    One that is still at work has no end either.
    """
    begun, ended = [], set()
    for line in read_lines(SessionLine, suite.folder / "sessions.jsonl", []):
        key = (line.controller_boot_id, line.begun_ns)
        if line.wall_s is None:
            begun.append(key)
        else:
            ended.add(key)
    killed = [key for key in begun if key not in ended]
    at_work = bool(killed) and killed[-1] == begun[-1] and not suite.sealed
    return len(begun), len(killed) - at_work


def _starts(entries: Sequence[Entry]) -> tuple[int, int, int, int]:
    """Count the agent's starts, and of those the resumed, after a boot, in the same boot."""
    starts = sum(entry.state == "suite-started" for entry in entries)
    resumed = reboots = restarts = 0
    started = True  # by the line before
    for span in spans(entries):
        if span.starting and (not started or span.entry.state == "suite-started"):
            if span.entry.state in TERMINAL:
                resumed += 1
            elif span.seconds is None:
                reboots += 1
            else:
                restarts += 1
        started = span.starting
    return starts, resumed, reboots, restarts


def _waits(entries: Sequence[Entry]) -> Iterable[Wait]:
    """Add up the waits by their causes; what a boot ended has no length."""
    waits: dict[str, Wait] = {}
    lengths = [*(span.seconds for span in spans(entries)), None]
    for entry, seconds in zip(entries, lengths, strict=False):
        if entry.state == "waiting":
            wait = waits.get(entry.cause, Wait(entry.cause, 0, 0.0))
            total_s = wait.seconds + max(0.0, seconds or 0.0)
            waits[entry.cause] = Wait(entry.cause, wait.times + 1, total_s)
    return waits.values()


def _repeated(attempts: Sequence[Attempt]) -> int:
    """Count the attempts that began after an earlier one of the same run was void."""
    voided: set[str] = set()
    lines = [(a.entries[0].seq, "begun", a.run_id) for a in attempts if a.begun]
    lines += [
        (a.void.seq, "void", a.run_id) for a in attempts if a.void and a.void.cause != SKIPPED
    ]
    repeated = 0
    for _, what, run_id in sorted(lines):
        if what == "void":
            voided.add(run_id)
        elif run_id in voided:
            voided.remove(run_id)
            repeated += 1
    return repeated


def _grouped(attempts: Iterable[Attempt]) -> Iterator[VoidTries]:
    """By reason, figures in it aside; the most frequent first."""
    groups: dict[str, list[str]] = {}
    apart = INTERRUPTIONS | {SKIPPED}
    for void in (a.void for a in attempts if a.void and a.void.cause not in apart):
        reason = void.detail or "no reason given"
        groups.setdefault(re.sub(r"\d+(\.\d+)?", "#", reason), []).append(reason)
    for reasons in sorted(groups.values(), key=len, reverse=True):
        yield VoidTries(reasons[-1], len(reasons))
