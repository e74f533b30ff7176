"""Messages of a running suite: receivers and content (docs/nights.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from contract.names import Name
from contract.schema import SECONDS, Closed, Items, Range
from contract.status import SuiteStatus

EventCode = Literal[
    "started",
    "waiting",
    "void-runs",
    "interrupted",
    "meter-silent",
    "target-lost",
    "finished",
    "sealed",
    "failed",
    "stopped",
    "test",
]


@dataclass(frozen=True, kw_only=True)
class Receiver(Closed):
    """A program that gets all messages or those of `events`: its words, without a shell."""

    name: Name
    argv: Annotated[tuple[str, ...], Items(1)]
    events: tuple[EventCode, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Notify(Closed):
    """Settings `fde_notify`: report waits of `waiting_s` and `void_runs` in a row."""

    receivers: tuple[Receiver, ...] = ()
    waiting_s: SECONDS = 600.0
    void_runs: Annotated[int, Range(least=1)] = 2


@dataclass(frozen=True)
class Message:
    """JSON that a receiver gets; `status` has run, time left and answer, null in a test."""

    format: Literal["fde-message/1"]
    event: EventCode
    suite_id: str
    host: str
    sentence: str
    wall: str
    status: SuiteStatus | None = None
