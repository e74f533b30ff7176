"""When the controller's sessions began and what they took (`sessions.jsonl`), and where the wall
time of a suite went (`timing.json`), the same as a table for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from contract import strict_json
from contract.journal import BEGUN, CLOSED, INTERRUPTIONS, PRECONDITIONING, TERMINAL, Entry, read
from controller.session.progress_text import minutes
from controller.session.session_times import NS, SESSIONS, lines, sessions_of

FORMAT = "fde-timing/1"
# The parts that add up to `wall_s`, and what they are called in the table.
PARTS = {
    "measuring_s": "measuring",
    "preconditioning_s": "preconditioning disks",
    "switching_s": "switching storage",
    "preparing_s": "preparing runs",
    "between_phases_s": "between phases",
    "proving_s": "proving the storage",
    "between_runs_s": "between runs",
    "repeated_s": "tries that were void",
    "waiting_s": "waiting",
    "down_s": "target or agent away",
    "start_s": "starting",
    "fetch_s": "fetching results",
    "other_s": "other",
}


CPU = ("controller_cpu_s", "controller_cpu_wall_s")


def of_suite(suite_dir: Path) -> dict[str, Any]:
    """The document of timing.json from a suite's other files."""
    plan = strict_json.loads((suite_dir / "plan.json").read_text(encoding="utf-8"))
    # What was set aside beside it (`<run id>.void-1`) does not count.
    paths = [suite_dir / "runs" / run["run_id"] / "run.json" for run in plan["runs"]]
    runs = [strict_json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]
    controller: dict[str, float] = {"wall_s": 0.0}
    clock = list(lines(suite_dir / "clock.jsonl"))
    for session in sessions_of(lines(suite_dir / SESSIONS), clock):
        for key, seconds in session.seconds.items():
            controller[key] = controller.get(key, 0.0) + seconds
    entries = read(suite_dir / "journal.jsonl")
    return summary(entries, runs, float(plan["settle_s"]), controller, clock)


def of_journal(
    entries: Sequence[Entry], clock: Sequence[Mapping[str, Any]] = ()
) -> dict[str, float]:
    """Seconds in each state on the target: the time from each line to the next of the same boot.

    `switching_s`, `proving_s` and `running_s` are those of tries that count in the end,
    `repeated_s` of all others, `between_runs_s` from the closing line of one to the next line.
    `waiting_s` is what was waited, in runs or between them. `down_s` is from the last line of an
    agent that did not end in order to the first of the next; across boots of the target by the
    clock readings, 0 without them.
    """
    spent = dict.fromkeys(("waiting_s", "down_s", "repeated_s", "between_runs_s"), 0.0)
    spent[f"{PRECONDITIONING}_s"] = 0.0
    spent |= dict.fromkeys((f"{state}_s" for state in BEGUN), 0.0)
    voided = {e.run_id: place for place, e in enumerate(entries) if e.state == "void"}
    starts = _starts(entries)
    for place, (now, then) in enumerate(pairwise(entries)):
        if place + 1 in starts:
            if now.state not in TERMINAL:
                spent["down_s"] += _between_s(now, then, clock)
        elif now.boot_id != then.boot_id:
            continue
        elif now.state in ("waiting", PRECONDITIONING):
            spent[f"{now.state}_s"] += (then.t_mono_ns - now.t_mono_ns) / NS
        elif now.state in CLOSED and then.state not in TERMINAL:
            spent["between_runs_s"] += (then.t_mono_ns - now.t_mono_ns) / NS
        elif now.state in BEGUN:
            counts = place > voided.get(now.run_id, -1)
            key = f"{now.state}_s" if counts else "repeated_s"
            spent[key] += (then.t_mono_ns - now.t_mono_ns) / NS
    return spent


def of_runs(runs: Iterable[Mapping[str, Any]], settle_s: float) -> dict[str, float]:
    """Seconds of the finished runs: in measured phases, in their tails, between the phases, and at
    rest before."""
    spent = dict.fromkeys(("phases_s", "tail_s", "between_phases_s"), 0.0)
    finished = [run for run in runs if run["status"] == "finished"]
    for run in finished:
        spent["between_phases_s"] += (run["t_end_ns"] - run["t_start_ns"]) / NS
        for phase in run["phases"]:
            seconds = (phase["t_end_ns"] - phase["t_start_ns"]) / NS
            spent["tail_s" if phase["name"] == "tail" else "phases_s"] += seconds
            spent["between_phases_s"] -= seconds
    return {**spent, "settle_s": settle_s * len(finished)}


def summary(
    entries: Sequence[Entry],
    runs: Iterable[Mapping[str, Any]],
    settle_s: float,
    controller: Mapping[str, float],
    clock: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The document of timing.json. `controller` holds the controller's own steps in seconds:
    `wall_s` (everything), `start_s`, `fetch_s`; `clock` the readings of clock.jsonl.

    Measuring is the time in phases of finished runs, the drift check's and the tails included: the
    time that figures come from. `preparing_s` is the rest of these runs before their first phase
    and after their tail: laying out data, checks, settling, clearing away.
    """
    states = of_journal(entries, clock)
    finished = of_runs(runs, settle_s)
    measuring_s = finished["phases_s"] + finished["tail_s"]
    between_s = finished["between_phases_s"]
    wall_s = controller["wall_s"]
    parts = {
        "measuring_s": measuring_s,
        "preconditioning_s": states["preconditioning_s"],
        "switching_s": states["switching_s"],
        "preparing_s": max(0.0, states["running_s"] - measuring_s - between_s),
        "between_phases_s": between_s,
        "proving_s": states["proving_s"],
        "between_runs_s": states["between_runs_s"],
        "repeated_s": states["repeated_s"],
        "waiting_s": states["waiting_s"],
        "start_s": controller.get("start_s", 0.0),
        "fetch_s": controller.get("fetch_s", 0.0),
    }
    # The target may have been away while no session was there either: that is no wall time.
    parts["down_s"] = min(states["down_s"], max(0.0, wall_s - sum(parts.values())))
    return {
        "format": FORMAT,
        "wall_s": wall_s,
        **parts,
        "other_s": max(0.0, wall_s - sum(parts.values())),
        "settle_s": finished["settle_s"],
        "tail_s": finished["tail_s"],
        "measuring_share": measuring_s / wall_s if wall_s > 0 else 0.0,
        **{key: controller[key] for key in CPU if key in controller},
    }


def on_target(timing: Mapping[str, Any]) -> str:
    """What measuring itself cost where the controller ran on the target; empty elsewhere."""
    cpu_s, within_s = (timing.get(key) for key in CPU)
    if not cpu_s or not within_s:
        return ""
    return (
        f"the controller ran on the target: it and its recorders kept {cpu_s / within_s:.1%} of "
        "one processor busy, which is part of the joules"
    )


def table(timing: Mapping[str, Any]) -> list[str]:
    """Where the wall time went, a line each, parts of nothing left out; empty without any."""
    wall_s = timing.get("wall_s")
    if not wall_s:
        return []
    shown = [f"where the suite's {minutes(wall_s)} went"]
    for key, name in PARTS.items():
        seconds = float(timing.get(key) or 0.0)
        if round(seconds, 1) > 0:
            shown.append(f"  {name:<22} {seconds:9.1f} s {seconds / wall_s:6.1%}")
    return [*shown, *filter(None, [on_target(timing)])]


def _starts(entries: Sequence[Entry]) -> set[int]:
    """Places of the lines that agents begin with: `suite-started`, and before it the voids of what
    an agent before it had left open."""
    places: set[int] = set()
    start: Entry | None = None
    for place, entry in reversed(list(enumerate(entries))):
        if entry.state == "suite-started":
            start = entry
        elif start and not (
            entry.state == "void"
            and entry.boot_id == start.boot_id
            and entry.cause in INTERRUPTIONS
        ):
            start = None
        if start:
            places.add(place)
    return places


def _between_s(now: Entry, then: Entry, clock: Sequence[Mapping[str, Any]]) -> float:
    """Seconds between two lines; of two boots by the controller's clock, 0 where it cannot tell."""
    if now.boot_id == then.boot_id:
        return (then.t_mono_ns - now.t_mono_ns) / NS
    before = [reading for reading in clock if reading["boot_id"] == now.boot_id]
    after = [reading for reading in clock if reading["boot_id"] == then.boot_id]
    if not before or not after:
        return 0.0
    last, first = before[-1], after[0]
    if last.get("controller_boot_id") != first.get("controller_boot_id"):
        return 0.0
    apart_ns = (then.t_mono_ns - _offset_ns(first)) - (now.t_mono_ns - _offset_ns(last))
    return max(0.0, apart_ns / NS)


def _offset_ns(reading: Mapping[str, Any]) -> float:
    """The target's clock less the controller's."""
    return float(reading["t_target_ns"] - (reading["t_send_ns"] + reading["t_receive_ns"]) / 2)
