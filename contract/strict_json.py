"""Read JSON from files or other machines; every fault in it is a ValueError."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from contract import schema
from contract.names import SURROGATES, as_utf8

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Document: TypeAlias = Mapping[str, Json]
_Shape = TypeVar("_Shape")
_MOST_DIGITS = 21  # of 64 bits, with a sign


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large for a number")
    return value


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS or abs(value := int(text)) >= 2**64:
        raise ValueError(f"{text[:20]} is too large for a number")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refused, parse_float=_finite, parse_int=_integer)


def dumps(document: Any, indent: int | None = 1) -> str:
    r"""Return the document as text; write bytes of a path that are not UTF-8 as `\xe9`."""
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    return SURROGATES.sub(lambda match: as_utf8(match[0]).replace("\\", "\\\\"), text)


def loads(text: str | bytes) -> Any:
    """Return the document.

    Raises ValueError, also for what Python's reader accepts or fails at otherwise: Infinity and
    NaN, whole numbers beyond 64 bits, unlimited nesting, halves of surrogate pairs.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        document = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return document


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty if it cannot be read."""
    try:
        document = loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def parse(shape: type[_Shape], text: str | bytes) -> _Shape:
    """Return an instance of a dataclass, read by `contract.schema`. Raises ValueError."""
    return schema.read(shape, loads(text))


def load(shape: type[_Shape], path: Path) -> _Shape | None:
    """Return the instance in a file; None if it cannot be read."""
    try:
        return parse(shape, path.read_bytes())
    except (OSError, ValueError):
        return None


def lines(shape: type[_Shape], path: Path) -> Iterator[_Shape]:
    """Yield an instance for each line of a file; lines torn by a power cut are left out."""
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            yield parse(shape, line)
        except ValueError:
            continue
