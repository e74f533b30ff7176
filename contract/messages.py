"""Messages of a running suite: receivers and content (docs/nights.md)."""

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
    """A receiver of all messages or of `events`: a program, a webhook, or a service of Apprise.

    `argv` is the program. The URL of the others is in `url_file`, because most URLs are secrets;
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
        """Return the key that the receiver's kind needs and it lacks; empty if complete."""
        key = "argv" if self.kind == "program" else "url_file"
        return "" if getattr(self, key) else key


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
