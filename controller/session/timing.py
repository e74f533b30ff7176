"""Compute where the wall time of a suite went, for timing.json and as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from contract import strict_json
from contract.attempts import NS, Span, spans
from contract.documents import TAIL, Phase, SessionLine
from contract.journal import BEGUN, CLOSED, PRECONDITIONING, TERMINAL, Entry, read
from contract.plan import SuitePlan
from contract.timing import PARTS, Timing
from controller.session.progress_text import minutes
from controller.session.session_times import read_sessions
from instrumentation.clock import ClockReading, offset_ns


@dataclass(frozen=True)
class RunTimes:
    """The times in a run.json; those of a void run may be null."""

    status: str
    t_start_ns: int | None
    t_end_ns: int | None
    phases: tuple[Phase, ...]


@dataclass
class Controller:
    """Seconds of the controller's steps, summed over all sessions; `wall_s` is the total."""

    wall_s: float = 0.0
    start_s: float = 0.0
    fetch_s: float = 0.0
    controller_cpu_s: float | None = None
    controller_cpu_wall_s: float | None = None

    def add(self, line: SessionLine) -> None:
        """Add a session."""
        for name in vars(self):
            if (seconds := getattr(line, name)) is not None:
                setattr(self, name, (getattr(self, name) or 0.0) + seconds)


def table(times: Timing) -> list[str]:
    """Return a line for each part that took time; empty if no session ran."""
    if not times.wall_s:
        return []
    shown = [f"where the suite's {minutes(times.wall_s)} went"]
    for key, name in PARTS.items():
        seconds: float = getattr(times, key)
        if round(seconds, 1) > 0:
            shown.append(f"  {name:<22} {seconds:9.1f} s {seconds / times.wall_s:6.1%}")
    if times.controller_share is not None:
        shown.append(
            "the controller ran on the target: it and its recorders kept "
            f"{times.controller_share:.1%} of one processor busy, which is part of the joules"
        )
    return shown


def read_suite(suite_dir: Path) -> Timing:
    """Compute the timing of a suite from its other files. Raises ValueError, OSError."""
    plan = strict_json.parse(SuitePlan, (suite_dir / "plan.json").read_bytes())
    # Void attempts that were set aside (`<run id>.void-1`) do not count.
    paths = [suite_dir / "runs" / run.run_id / "run.json" for run in plan.runs]
    runs = [strict_json.parse(RunTimes, path.read_bytes()) for path in paths if path.is_file()]
    clock = list(strict_json.lines(ClockReading, suite_dir / "clock.jsonl"))
    controller = Controller()
    for session in read_sessions(suite_dir, clock):
        controller.add(session.line)
    entries = read(suite_dir / "journal.jsonl")
    return suite_timing(entries, runs, plan.settle_s, controller, clock)


def state_seconds(entries: Sequence[Entry], clock: Sequence[ClockReading] = ()) -> dict[str, float]:
    """Sum the seconds in each state on the target, from each line to the next of the same boot.

    `switching_s`, `proving_s` and `running_s` are those of attempts that count in the end,
    `repeated_s` of all others, `between_runs_s` from the last line of an attempt to the next line,
    `waiting_s` of all waits, in runs or between them. `down_s` is from the last line of an agent
    that did not end in order to the first of the next; across boots of the target by the clock
    readings, 0 without them.
    """
    spent = dict.fromkeys(("waiting_s", "down_s", "repeated_s", "between_runs_s"), 0.0)
    spent |= dict.fromkeys((f"{state}_s" for state in (*BEGUN, PRECONDITIONING)), 0.0)
    for span in spans(entries):
        state, seconds = span.entry.state, span.seconds
        if span.starting:
            if state not in TERMINAL:
                spent["down_s"] += _down_s(span, clock)
        elif seconds is None:
            continue
        elif state in ("waiting", PRECONDITIONING):
            spent[f"{state}_s"] += seconds
        elif state in CLOSED and span.after.state not in TERMINAL:
            spent["between_runs_s"] += seconds
        elif state in BEGUN:
            void = span.attempt is not None and span.attempt.void
            spent["repeated_s" if void else f"{state}_s"] += seconds
    return spent


def suite_timing(
    entries: Sequence[Entry],
    runs: Iterable[RunTimes],
    settle_s: float,
    controller: Controller,
    clock: Sequence[ClockReading] = (),
) -> Timing:
    """Compute where the wall time of a suite went.

    `measuring_s` is the time in phases of finished runs, including the drift check's and the tails:
    the time that figures are computed from. `preparing_s` is the time of these runs before their
    first phase and after their tail: laying out data, checks, settling, clearing away.
    """
    states = state_seconds(entries, clock)
    finished = [run for run in runs if run.status == "finished"]
    phases = [phase for run in finished for phase in run.phases]
    measuring_s = sum(phase.duration_s for phase in phases)
    lengths_s = ((run.t_end_ns or 0) - (run.t_start_ns or 0) for run in finished)
    between_s = sum(lengths_s) / NS - measuring_s
    wall_s = controller.wall_s
    parts = {
        **{key: seconds for key, seconds in states.items() if key in PARTS and key != "down_s"},
        "measuring_s": measuring_s,
        "preparing_s": max(0.0, states["running_s"] - measuring_s - between_s),
        "between_phases_s": between_s,
        "start_s": controller.start_s,
        "fetch_s": controller.fetch_s,
    }
    # Time that the target was away without a session is not part of the wall time.
    parts["down_s"] = min(states["down_s"], max(0.0, wall_s - sum(parts.values())))
    return Timing(
        wall_s=wall_s,
        **parts,
        other_s=max(0.0, wall_s - sum(parts.values())),
        settle_s=settle_s * len(finished),
        tail_s=sum(phase.duration_s for phase in phases if phase.name == TAIL),
        measuring_share=measuring_s / wall_s if wall_s > 0 else 0.0,
        controller_cpu_s=controller.controller_cpu_s,
        controller_cpu_wall_s=controller.controller_cpu_wall_s,
    )


def _down_s(span: Span, clock: Sequence[ClockReading]) -> float:
    """Return the seconds between two lines; across boots by the clock readings, 0 without them."""
    if span.seconds is not None:
        return span.seconds
    entry, after_entry = span.entry, span.after
    before = [reading for reading in clock if reading.boot_id == entry.boot_id]
    after = [reading for reading in clock if reading.boot_id == after_entry.boot_id]
    if not before or not after:
        return 0.0
    last, first = before[-1], after[0]
    if last.controller_boot_id != first.controller_boot_id:
        return 0.0
    apart_ns = (after_entry.t_mono_ns - offset_ns(first)) - (entry.t_mono_ns - offset_ns(last))
    return max(0.0, apart_ns / NS)
