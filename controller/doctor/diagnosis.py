"""What a diagnosis is, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from controller.doctor.noise import Noise
from controller.doctor.probe import Probe
from controller.look import Look

State = Literal["pass", "fail", "warn", "not_made"]


@dataclass(frozen=True)
class Diagnosis:
    """One line of the page. `code` is for programs, `sentence` and `way_out` for people; the latter
    is empty where nothing is to be done. `fail` stands in the way of a suite, `warn` makes its
    figures worse, `not_made` says why it could not be told."""

    code: str
    state: State
    sentence: str
    way_out: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Host:
    """The controller itself: `root` is where its files are, for tests.

    `out` is where suites go; `names` of the processes that run.
    """

    out: Path
    sleep: Mapping[str, Any]
    free_bytes: int
    names: frozenset[str]
    root: Path = Path("/")


@dataclass(frozen=True)
class Scene:
    """All that was found out of one target. `look` is None where it could not be asked, which
    `unreached` explains; `probes` are by meter, `noise` is None where it was not measured; `suite`
    is what the resolution is told for."""

    target: Mapping[str, Any]
    look: Look | None
    unreached: str
    host: Host
    probes: Mapping[str, Probe]
    noise: Noise | None = None
    noise_error: str = ""
    suite: str = "smoke"
    scale: str | None = None
    blocks: int | None = None
    hours: float | None = None

    def part(self, name: str) -> Any:
        """Of `agent.examine`; None where the target was not asked, or could not tell."""
        found = self.look.examined.get(name) if self.look else None
        return None if isinstance(found, dict) and "error" in found else found

    def part_error(self, name: str) -> str:
        """Why a part could not be told; empty where it was."""
        found = self.look.examined.get(name) if self.look else None
        failed = isinstance(found, dict) and "error" in found
        return f"{str(found['error']).rstrip('.')}." if failed and found else ""


Judge = Callable[[Scene], Iterator[Diagnosis]]


@dataclass(frozen=True)
class Row:
    """A row of the table: `code` heads those of its diagnoses, `what` says what is looked at, and
    `needs_target` that nothing can be said where the target was not reached."""

    code: str
    what: str
    judge: Judge
    needs_target: bool = True


def not_made(code: str, why: str, way_out: str = "") -> Diagnosis:
    return Diagnosis(code, "not_made", why, way_out)


def passed(code: str, sentence: str, **facts: Any) -> Diagnosis:
    return Diagnosis(code, "pass", sentence, "", facts)


def split(sentence: str) -> tuple[str, str]:
    """What is wrong and the way out, of a sentence that has a colon between them, which stands
    neither in brackets nor in backquotes, nor behind a mere name."""
    text = sentence.strip().rstrip(".")
    depth, quoted = 0, False
    for at, letter in enumerate(text):
        quoted ^= letter == "`"
        depth += (letter in "([") - (letter in ")]")
        if text[at : at + 2] == ": " and not depth and not quoted and " " in text[:at]:
            return _begun(text[:at]), f"{text[at + 2 :]}."
    return _begun(text), ""


def _begun(text: str) -> str:
    """As a sentence; a name or a command at its head stays as it is written."""
    plain = text.split(" ", 1)[0] in ("a", "an", "it", "its", "no", "the", "there", "two")
    return f"{text[:1].upper() + text[1:] if plain else text}."
