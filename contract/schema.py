"""Documents by the shape of a dataclass: read strictly, or told of as a JSON Schema (2020-12).

A shape is a dataclass, a builtin, a Literal, a union, Any, `tuple[X, ...]`, `tuple[X, Y]`,
`Sequence[X]` or `Mapping[str, X]`; `Annotated` bounds it with `Range` or `Text`. A field with a
default may be missing. `python -m contract.schema` writes `data/schema/`.
"""

from __future__ import annotations

import json
import re
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from contract.places import SHARE

FOLDER = SHARE / "data" / "schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BUILTINS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_Shape = TypeVar("_Shape")


@dataclass(frozen=True)
class Range:
    """Bounds of a figure: `least` and `most` are allowed, `above` is not."""

    least: float | None = None
    most: float | None = None
    above: float | None = None

    def holds(self, value: Any) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
        )

    def keywords(self) -> dict[str, Any]:
        bounds = {"minimum": self.least, "maximum": self.most, "exclusiveMinimum": self.above}
        return {key: bound for key, bound in bounds.items() if bound is not None}


@dataclass(frozen=True)
class Text:
    """A text that is a regular expression from end to end; `words` say so for people."""

    pattern: str
    words: str = ""

    def holds(self, value: Any) -> bool:
        return re.fullmatch(self.pattern, value) is not None

    def keywords(self) -> dict[str, Any]:
        return {"pattern": f"^(?:{self.pattern})$"}


REST = "all other keys"
"""In `Annotated`, of a field that takes all keys for which there is no other."""
SHA256 = Annotated[str, Text("[0-9a-f]{64}")]
COUNT = Annotated[int, Range(least=0, most=2**63 - 1)]
SECONDS = Annotated[float, Range(least=0)]


def read(shape: type[_Shape], document: object) -> _Shape:
    """Return an instance of a dataclass; keys that it has no field for are passed over.

    Raises ValueError, which says where the document is not so.
    """
    instance: _Shape = _read(shape, document, "")
    return instance


def _read(shape: Any, value: Any, place: str) -> Any:  # noqa: PLR0911 - one for each kind of shape
    origin, inner = get_origin(shape), get_args(shape)
    if shape is Any:
        return value
    if origin is Annotated:
        inner_value = _read(inner[0], value, place)
        if not all(limit.holds(inner_value) for limit in inner[1:]):
            raise _other(place, value, inner)
        return inner_value
    if origin is Literal:
        if not any(type(value) is type(known) and value == known for known in inner):
            raise _other(place, value, inner)
        return value
    if origin in (Union, types.UnionType):
        return _either(inner, value, place)
    if origin in (tuple, Sequence) and isinstance(value, list | tuple):
        shapes = inner[:1] * len(value) if inner[1:] in ((), (...,)) else inner
        if len(shapes) != len(value):
            raise _other(place, value, inner)
        numbered = enumerate(zip(shapes, value, strict=True))
        return tuple(_read(of, one, f"{place}[{number}]") for number, (of, one) in numbered)
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {
            _read(inner[0], key, place): _read(inner[1], one, _inside(place, key))
            for key, one in value.items()
        }
    if is_dataclass(shape) and isinstance(value, Mapping):
        return _object(shape, value, place)
    if shape is float and type(value) in (int, float):
        return float(value)
    if shape in _BUILTINS and type(value) is shape:
        return value
    raise _other(place, value, inner)


def _object(shape: Any, value: Mapping[Any, Any], place: str) -> Any:
    arguments = {}
    for name, (of, needed) in _fields(shape).items():
        if _takes_rest(of):
            rest = {key: one for key, one in value.items() if key not in _fields(shape)}
            arguments[name] = _read(get_args(of)[0], rest, place)
        elif name in value:
            arguments[name] = _read(of, value[name], _inside(place, name))
        elif needed:
            raise ValueError(f"{_inside(place, name)!r} is missing")
    return shape(**arguments)


def _either(shapes: tuple[Any, ...], value: Any, place: str) -> Any:
    faults = []
    for shape in shapes:
        try:
            return _read(shape, value, place)
        except ValueError as error:
            faults.append((shape is not type(None), len(str(error)), error))
    raise max(faults, key=lambda fault: fault[:2])[2]  # the one that says most


@cache
def _fields(shape: Any) -> dict[str, tuple[Any, bool]]:
    """By name: the shape of a dataclass's field, and whether it is needed."""
    hints = get_type_hints(shape, include_extras=True)
    return {
        field.name: (
            hints[field.name],
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(shape)
    }


def _takes_rest(shape: Any) -> bool:
    return REST in get_args(shape)[1:]


def _inside(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


def _other(place: str, value: object, wanted: tuple[Any, ...]) -> ValueError:
    shown = value if isinstance(value, str | int | float | None) else type(value).__name__
    text = f"{place or 'it'} is {shown!r:.60}"
    for one in wanted:
        if isinstance(one, Text) and one.words:
            text += f", but {one.words}"
        elif isinstance(one, Range | Text):
            text += "".join(f", {key} {bound}" for key, bound in one.keywords().items())
    known = [repr(one) for one in wanted if isinstance(one, str)]
    return ValueError(text + (f", not {' or '.join(known)}" if known else ""))


def schema(shape: Any) -> dict[str, Any]:  # noqa: PLR0911 - as `_read`
    """Return what `_read` asks of a document of this shape."""
    origin, inner = get_origin(shape), get_args(shape)
    if origin is Annotated:
        bounded = schema(inner[0])
        for limit in inner[1:]:
            bounded |= limit.keywords()
        return bounded
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema(one) for one in inner]}
    if origin in (tuple, Sequence):
        if inner[1:] in ((), (...,)):
            return {"type": "array", "items": schema(inner[0])}
        same = {"minItems": len(inner), "maxItems": len(inner)}
        return {"type": "array", "prefixItems": [schema(one) for one in inner], **same}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        names = {} if inner[0] is str else {"propertyNames": schema(inner[0])}
        return {"type": "object", "additionalProperties": schema(inner[1]), **names}
    if isinstance(shape, type) and is_dataclass(shape):
        properties = {n: of for n, (of, _) in _fields(shape).items() if not _takes_rest(of)}
        rest = [schema(get_args(of)[0]) for of, _ in _fields(shape).values() if _takes_rest(of)]
        return {
            "description": " ".join((shape.__doc__ or "").partition("\n\n")[0].split()),
            "type": "object",
            "properties": {name: schema(of) for name, of in properties.items()},
            "required": [name for name, (_, needed) in _fields(shape).items() if needed],
            **({"additionalProperties": rest[0]["additionalProperties"]} if rest else {}),
        }
    return {} if shape is Any else {"type": _BUILTINS[shape]}


def texts() -> dict[str, str]:
    """Return the files of `data/schema/`, by name."""
    from contract.command_results import COMMANDS
    from contract.documents import DOCUMENTS  # whose shapes are read with this module

    printed = {f"fde-{name}": (f"fde {name} --json", shape) for name, shape in COMMANDS.items()}
    return {
        f"{name}.json": json.dumps(
            {"$schema": DIALECT, "title": title, **schema(shape)}, ensure_ascii=False, indent=1
        )
        + "\n"
        for name, (title, shape) in {**DOCUMENTS, **printed}.items()
    }


def main() -> int:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
