"""Progress of a running suite (status.json) and its answer so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RunningAnswer:
    """Ratio of the system's joules to the baseline's by label, over `blocks` complete blocks.

    `origin` is the worst of the joules'.
    """

    blocks: int
    origin: str
    ratios: Mapping[str, float]


@dataclass(frozen=True)
class Event:
    """An event that people want to know, with the wall time (UTC) at which it was received."""

    wall: str
    text: str


@dataclass(frozen=True)
class SuiteStatus:
    """status.json; `block` and `run_index` count from 1 and are null between runs.

    `since_s` is the age of the journal's last line. `finished`, `void` and `skipped` (the target
    cannot run their workload) count runs, `repeated` attempts. `left_s` and `ends_wall` are null
    before the first finished run. `watts` is by channel, `gaps` by meter. `void_in_a_row` are void
    runs since the last finished one, `interrupted` attempts that were cut short.
    """

    format: Literal["fde-status/1"]
    suite_id: str
    suite: str
    host: str
    state: str
    since_s: float
    block: int | None
    blocks: int
    run_index: int | None
    runs: int
    run_id: str
    configuration: str
    workload: str
    finished: int
    void: int
    skipped: int
    repeated: int
    waiting: str | None
    waiting_for: str | None
    left_s: int | None
    ends_wall: str | None
    watts: Mapping[str, float]
    gaps: Mapping[str, int]
    events: tuple[Event, ...]
    updated_wall: str
    holder: str
    answer: RunningAnswer | None = None
    void_in_a_row: int = 0
    interrupted: int = 0
