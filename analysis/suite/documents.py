"""JSON documents and lines as they were fetched; what cannot be read becomes a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from contract import strict_json

# Of lines, what is a time or a name there, and nothing else.
TIMES = frozenset(
    ("seq", "t_mono_ns", "t_send_ns", "t_target_ns", "t_receive_ns", "begun_ns", "spread_ns")
)
WORDS = frozenset(("boot_id", "controller_boot_id", "state", "run_id", "detail", "zone"))


def optional(path: Path, problems: list[str]) -> dict[str, Any]:
    """A JSON object; empty where there is none."""
    if not path.exists():
        return {}
    try:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        problems.append(f"{path.name} cannot be read.")
        return {}
    return document if isinstance(document, dict) else {"entries": document}


def mapping(value: Any) -> Mapping[str, Any]:
    """What should be an object; empty where it is none."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects in what should be a list of them; empty where it is none."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def seconds(path: Path) -> dict[str, Any]:
    """timing.json without what should be seconds and is none; empty where there is none."""
    return {
        key: value
        for key, value in optional(path, []).items()
        if not key.endswith("_s") or type(value) in (int, float)
    }


def _word(value: object) -> bool:
    return value is None or isinstance(value, str)


def lines(path: Path, problems: list[str]) -> Iterator[dict[str, Any]]:
    """JSON objects of a file of lines; a line that cannot be read is told and left out.

    So is one whose times are no whole numbers, or whose names are no words.
    """
    if not path.exists():
        return
    bad = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = strict_json.loads(text)
            except ValueError:
                bad += 1
                continue
            if not isinstance(line, dict):
                continue
            if all(
                type(value) is int if key in TIMES else key not in WORDS or _word(value)
                for key, value in line.items()
            ):
                yield line
            else:
                bad += 1
    if bad:
        problems.append(f"{path.name} is cut short or damaged: {bad} line(s) cannot be read.")
