"""What a diagnosis finds, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from controller.target.doctor.noise import Noise
from controller.target.doctor.probe import Probe
from controller.target.survey import Look

State = Literal["pass", "warn", "fail", "not_made"]


@dataclass(frozen=True)
class Finding:
    """A `DiagnosisResult` without its code, which is its row's."""

    state: State
    sentence: str
    way_out: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def failed(sentence: str, way_out: str = "", facts: Mapping[str, Any] | None = None) -> Finding:
    """It stands in the way of a suite."""
    return Finding("fail", sentence, way_out, facts or {})


def warned(sentence: str, way_out: str = "", facts: Mapping[str, Any] | None = None) -> Finding:
    """It makes a suite's figures worse."""
    return Finding("warn", sentence, way_out, facts or {})


def not_made(why: str, way_out: str = "") -> Finding:
    """It could not be told."""
    return Finding("not_made", why, way_out)


def passed(sentence: str, **facts: Any) -> Finding:
    """It is in order."""
    return Finding("pass", sentence, "", facts)


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
class Purpose:
    """The suite that a target is looked at for: its size says what it could resolve."""

    suite: str = "smoke"
    scale: str | None = None
    blocks: int | None = None
    hours: float | None = None


FIRST_SUITE = Purpose()


@dataclass(frozen=True)
class Scene:
    """All that was found out of one target.

    `look` is None where it could not be asked, which `unreached` explains; `probes` are by meter,
    `noise` is None where it was not measured.
    """

    target: Mapping[str, Any]
    look: Look | None
    unreached: str
    host: Host
    probes: Mapping[str, Probe]
    noise: Noise | None = None
    noise_error: str = ""
    purpose: Purpose = FIRST_SUITE

    def part(self, name: str) -> Any:
        """Of `agent.examine`; None where the target was not asked, or could not tell."""
        part = self.look.examined.get(name) if self.look else None
        return None if isinstance(part, dict) and "error" in part else part

    def part_error(self, name: str) -> str:
        """Why a part could not be told; empty where it was."""
        part = self.look.examined.get(name) if self.look else None
        return f"{str(part['error']).rstrip('.')}." if part and self.part(name) is None else ""

    def untold(self, name: str, otherwise: str = "It was not looked at.") -> Finding:
        """Of a part that is None."""
        return not_made(self.part_error(name) or otherwise)


Judge = Callable[[Scene], Iterable[Finding]]


@dataclass(frozen=True)
class Row:
    """A row of the table: `code` heads those of its diagnoses, `what` says what is looked at, and
    `needs_target` that nothing can be said where the target was not reached."""

    code: str
    what: str
    judge: Judge
    needs_target: bool = True


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
