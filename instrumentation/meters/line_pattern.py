"""Patterns of line meters: regular expressions whose named groups have quantity and unit.

RE2 matches them in a time that is linear in the line's length: a pattern is untrusted input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from operator import itemgetter

import re2

from contract.problem import ProblemError
from instrumentation.meters import units

# Quantity and factor to W, V, A, J or µs, by the name of a group.
UNITS = {
    **{
        f"{unit.quantity}_{text.lower()}": (unit.quantity, unit.size or 1.0)
        for text, unit in units.UNITS.items()
        if unit.quantity in ("power", "voltage", "current", "energy") and text.isascii()
    },
    **{"t_ms": ("t", 1e3), "t_us": ("t", 1.0)},
}
ONLY_CHANNEL = "0"
_MOST_LETTERS = 1000
_REPEAT = re.compile(r"[*+?]|\{.*,.*\}")
# A byte is a character: lines may hold any.
_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1
_OPTIONS.log_errors = False

_GROUP = re.compile(r"(t_ms|t_us)|(?!t_)([a-z]+_[a-z]+)(?:_([A-Za-z0-9]+))?")
_TOKEN = re.compile(
    r"(?P<open>\((?:\?(?:P<\w+>|:|<?[=!]))?)|(?P<close>\))"
    r"|(?P<repeat>[*+?]|\{\d*,?\d*\})|(?P<edge>[\^$|.]|\\[AbBZ])"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<one>\\.|.)",
    re.DOTALL,
)


class PatternError(ProblemError, ValueError):
    """A pattern that cannot be used; the message has the reason and the remedy."""


@dataclass(frozen=True)
class Value:
    """A group of the pattern, its index, and the factor that its value is multiplied by.

    `separators` are the points and commas that follow it in the pattern: before a digit, any other
    is part of the number.
    """

    group: str
    index: int
    factor: float
    separators: str = ""
    other_units: frozenset[bytes] = frozenset()  # of the same quantity, which a line may show


@dataclass(frozen=True)
class Layout:
    """A parsed pattern: the group of the time, and the group of each channel's quantities."""

    regex: re2.Pattern
    time: Value | None
    channels: Mapping[str, Mapping[str, Value]]


def layout(pattern: str) -> Layout:
    """Parse a pattern into its groups by channel. Raises PatternError."""
    if len(pattern) > _MOST_LETTERS:
        raise PatternError("pattern-too-long", most_letters=_MOST_LETTERS)
    try:
        regex = re2.compile(pattern.encode(), _OPTIONS)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
        raise PatternError("pattern-invalid", pattern=pattern, reason=reason) from None
    time: Value | None = None
    channels: dict[str, dict[str, Value]] = {}
    for name, index in sorted(regex.groupindex.items(), key=itemgetter(1)):
        group = name.decode()
        match = _GROUP.fullmatch(group)
        unit = (match[1] or match[2]) if match else ""
        if match is None or unit not in UNITS:
            raise PatternError("unknown-group", group=group, units=", ".join(UNITS))
        channel = match[3] or ONLY_CHANNEL
        quantity, factor = UNITS[unit]
        if quantity == "t":
            if time is not None:
                raise PatternError("two-times")
            time = Value(group, index, factor, _separators(pattern, group))
            continue
        values = channels.setdefault(channel, {})
        if quantity in values:
            raise PatternError(
                "group-twice",
                quantity=quantity,
                channel=channel,
                group=group,
                other=values[quantity].group,
            )
        if wildcard := _wildcard_before(pattern, group):
            raise PatternError("wildcard-before", group=group, wildcard=wildcard)
        shown = _shown_unit(pattern, group)
        if units.UNITS.get(shown, UNITS[unit]) != UNITS[unit]:
            raise PatternError("another-unit-behind", group=group, shown=shown)
        others = frozenset(
            name.encode()
            for name, other in units.UNITS.items()
            if other.quantity == quantity and other.size != factor
            if quantity in ("power", "energy")
        )
        values[quantity] = Value(group, index, factor, _separators(pattern, group), others)
    for channel, values in channels.items():
        if "power" not in values and not {"voltage", "current"} <= set(values):
            raise PatternError("channel-without-power", channel=channel)
    if not channels:
        raise PatternError("no-power")
    return Layout(regex, time, channels)


def _separators(pattern: str, group: str) -> str:
    """Return the points and commas among the next few tokens after a group."""
    behind = [
        text.lstrip("\\") for kind, text in _tokens_behind(pattern, group)[:3] if kind == "one"
    ]
    return "".join(text for text in behind if text in ".,")


def _shown_unit(pattern: str, group: str) -> str:
    """Return the letters that the pattern has behind a group, also after spaces."""
    behind = [text for _, text in _tokens_behind(pattern, group)]
    letters = dropwhile(lambda text: text in (" ", "\\s", "\\ ", "*", "+", "?"), behind)
    return "".join(takewhile(str.isalpha, letters))


def _wildcard_before(pattern: str, group: str) -> str:
    """Return a repeated token before a group that may take part of its number; empty if none."""
    before = pattern[: pattern.index(f"(?P<{group}>")]
    texts = ["", "", *(match[0] for match in _TOKEN.finditer(before))]
    if texts[-1] == "?" and _REPEAT.fullmatch(texts[-2]):
        texts.pop()  # of a lazy repeat
    token, repeat = texts[-2:]
    if not _REPEAT.fullmatch(repeat) or token == ")":
        return ""
    takes = any(re2.fullmatch(token.encode(), text, _OPTIONS) for text in (b"0", b"-"))
    return (token + repeat) * takes


def _tokens_behind(pattern: str, group: str) -> list[tuple[str, str]]:
    """Return kind and text of each token of the pattern after a group."""
    opened: list[str] = []
    tokens = [(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(pattern)]
    for n, (kind, text) in enumerate(tokens):
        if kind == "open":
            opened.append(text)
        elif kind == "close" and opened and opened.pop() == f"(?P<{group}>":
            return tokens[n + 1 :]
    return []
