"""Messages of a running suite: who gets them, and what one holds (docs/nights.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from contract.names import Name
from contract.schema import SECONDS, Closed, Range
from contract.status import SuiteStatus

EventCode = Literal[
    "started",
    "waiting",
    "void-runs",
    "interrupted",
    "meter-silent",
    "target-lost",
    "power-cycled",
    "target-off",
    "finished",
    "sealed",
    "failed",
    "stopped",
    "test",
]


@dataclass(frozen=True, kw_only=True)
class Receiver(Closed):
    """Who gets messages: a program, a webhook, or any service of Apprise; of these `events` or all.

    `argv` is the program. The URL of the others stands in `url_file`, for most URLs are secrets;
    `key_file` has the key of a webhook's signature. Both are files of mode 0600.
    """

    name: Name
    kind: Literal["program", "webhook", "apprise"]
    argv: tuple[str, ...] = ()
    url_file: str = ""
    key_file: str = ""
    events: tuple[EventCode, ...] = ()

    @property
    def missing(self) -> str:
        """The key that its kind needs and this one lacks; empty where it is complete."""
        key = "argv" if self.kind == "program" else "url_file"
        return "" if getattr(self, key) else key


@dataclass(frozen=True, kw_only=True)
class Notify(Closed):
    """`fde_notify`: a message is sent after `waiting_s` of a wait, and `void_runs` in a row."""

    receivers: tuple[Receiver, ...] = ()
    waiting_s: SECONDS = 600.0
    void_runs: Annotated[int, Range(least=1)] = 2


@dataclass(frozen=True)
class Message:
    """What a receiver gets as JSON; `status` has run, time left and answer, null in a test."""

    format: Literal["fde-message/1"]
    event: EventCode
    suite_id: str
    host: str
    sentence: str
    wall: str
    status: SuiteStatus | None = None
