"""Read and write documents by the shape of a dataclass.

A shape is a dataclass, a builtin, a Literal, a union, Any, `tuple[X, ...]`, `tuple[X, Y]`,
`Sequence[X]` or `Mapping[str, X]`; `Annotated` bounds it with `Range`, `Text` or `Items`. A field
with a default may be missing. `validation.schemas` publishes shapes as JSON Schema.
"""

from __future__ import annotations

import difflib
import re
import sys
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
_LARGEST = sys.float_info.max
_Shape = TypeVar("_Shape")


@dataclass(frozen=True)
class Range:
    """Bounds of a figure: `least` and `most` are allowed, `above` and `below` are not."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def words(self) -> str:
        """Return the bounds in words."""
        words = {"at least": self.least, "at most": self.most}
        words |= {"above": self.above, "below": self.below}
        return " and ".join(f"{word} {bound}" for word, bound in words.items() if bound is not None)

    def holds(self, value: Any) -> bool:
        """Return whether a value is within the bounds."""
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


@dataclass(frozen=True)
class Text:
    """A text that matches a regular expression from end to end; `words` describe it to people."""

    pattern: str
    words: str = ""

    def holds(self, value: Any) -> bool:
        """Return whether a text matches the pattern."""
        return re.fullmatch(self.pattern, value) is not None


@dataclass(frozen=True)
class Items:
    """The least and most number of entries of a list or mapping."""

    least: int
    most: int | None = None

    @property
    def words(self) -> str:
        """Return the bound in words."""
        return f"of at least {self.least}" + (f" and at most {self.most}" if self.most else "")

    def holds(self, value: Any) -> bool:
        """Return whether a list or mapping has an allowed number of entries."""
        return len(value) >= self.least and (self.most is None or len(value) <= self.most)


class Closed:
    """Base of a shape that refuses unknown keys, for files that people write.

    A key without a value (null) counts as missing.
    """


REST = "all other keys"
"""In `Annotated`, marks the field that takes all keys without a field, except null ones."""
KEY = {"role": "key"}
"""Metadata of a field that holds the object's own key in the enclosing mapping."""
OMITTED = {"role": "omitted"}
"""Metadata of a field that `write` leaves out if it has its default."""
SHA256 = Annotated[str, Text("[0-9a-f]{64}")]
COUNT = Annotated[int, Range(least=0, most=2**63 - 1)]
SECONDS = Annotated[float, Range(least=0)]


def read(shape: type[_Shape], document: object, place: str = "") -> _Shape:
    """Return an instance of a dataclass; ignore keys without a field, or refuse them if `Closed`.

    Raises ValueError with the place of the fault (below `place`), the wrong value and what it must
    be.
    """
    instance: _Shape = _read(shape, document, place)
    return instance


def _read(shape: Any, value: Any, place: str, key: str = "") -> Any:  # noqa: PLR0911 - one a kind
    origin, inner = get_origin(shape), get_args(shape)
    if shape is Any:
        return value
    if origin is Annotated:
        return _read_bounded(shape, value, place)
    if origin is Literal:
        if not any(type(value) is type(choice) and value == choice for choice in inner):
            raise ShapeError(shape, value, place)
        return value
    if origin in (Union, types.UnionType):
        return _read_union(shape, value, place)
    if origin in (tuple, Sequence) and isinstance(value, list | tuple):
        inner = (*inner, ...) if origin is Sequence else inner
        shapes = inner[:1] * len(value) if inner[1:] == (...,) else inner
        if len(shapes) != len(value):
            raise ShapeError(shape, value, place)
        numbered = enumerate(zip(shapes, value, strict=True))
        return tuple(_read(part, item, f"{place}[{number}]") for number, (part, item) in numbered)
    if is_mapping(origin) and isinstance(value, Mapping):
        return {
            _read(inner[0], name, f"a key of {place}"): _read(
                inner[1], item, _inside(place, name), name
            )
            for name, item in value.items()
        }
    if is_dataclass(shape) and isinstance(value, Mapping):
        return _read_object(shape, value, place, key)
    if shape is float and type(value) in (int, float) and abs(value) <= _LARGEST:
        return float(value)
    if shape in _WORDS and type(value) is shape:
        return value
    raise ShapeError(shape, value, place)


def _read_bounded(shape: Any, value: Any, place: str) -> Any:
    inner, *limits = get_args(shape)
    try:
        bounded = _read(inner, value, place)
    except ShapeError as error:
        raise error if error.place != place else ShapeError(shape, value, place) from None
    if not all(limit.holds(bounded) for limit in limits):
        raise ShapeError(shape, value, place)
    return bounded


def _read_object(shape: Any, value: Mapping[Any, Any], place: str, key: str) -> Any:
    layout = layout_of(shape)
    arguments: dict[str, Any] = {} if layout.key is None else {layout.key: key}
    for name, (hint, needed) in layout.fields.items():
        if name in value and (needed or not layout.closed or value[name] is not None):
            arguments[name] = _read(hint, value[name], _inside(place, name))
        elif needed:
            missing = _inside(place, name)
            raise PlacedError(f"{missing!r} is missing", missing)
    if layout.catch_all is not None:
        name, hint = layout.catch_all
        stated = {
            k: item for k, item in value.items() if k not in layout.fields and item is not None
        }
        arguments[name] = _read(hint, stated, place)
    elif layout.closed:
        for unknown in (str(name) for name in value if name not in layout.fields):
            near = nearest(unknown, layout.fields).rstrip(".")
            inside = _inside(place, unknown)
            raise PlacedError(f"unknown key {inside!r:.80}; {near}", inside)
    return shape(**arguments)


def _read_union(shape: Any, value: Any, place: str) -> Any:
    """Read as the first shape that fits; else raise the fault that is deepest in the value."""
    deepest: ValueError | None = None
    for member in get_args(shape):
        try:
            return _read(member, value, place)
        except ShapeError as error:
            if error.place != place:
                deepest = error
        except ValueError as error:
            deepest = error
    raise deepest or ShapeError(shape, value, place)


class Layout(NamedTuple):
    """Fields of a dataclass to read: by name the shape of each field and whether it is required.

    `catch_all` is the field of all other keys with its shape, `key` that of the object's own key.
    """

    fields: Mapping[str, tuple[Any, bool]]
    catch_all: tuple[str, Any] | None
    key: str | None
    closed: bool


@cache
def layout_of(shape: Any) -> Layout:
    """Return the fields of a dataclass that are read and written."""
    hints = get_type_hints(shape, include_extras=True)
    named: dict[str, tuple[Any, bool]] = {}
    catch_all, key = None, None
    for field in fields(shape):
        hint = hints[field.name]
        if field.metadata == KEY:
            key = field.name
        elif REST in get_args(hint)[1:]:
            catch_all = field.name, get_args(hint)[0]
        else:
            needed = field.default is MISSING and field.default_factory is MISSING
            named[field.name] = hint, needed
    return Layout(named, catch_all, key, issubclass(shape, Closed))


def is_mapping(origin: Any) -> bool:
    """Return whether the origin of a shape is a kind of mapping."""
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _inside(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


class PlacedError(ValueError):
    """A fault of a document at a place, with the names of the keys that lead there."""

    def __init__(self, text: str, place: str) -> None:
        super().__init__(text)
        self.place = place


class ShapeError(PlacedError):
    """A value that does not have its shape; its text is composed only when shown."""

    def __init__(self, shape: Any, value: object, place: str) -> None:
        super().__init__("", place)
        self.args = shape, value, place

    @property
    def needs_text(self) -> bool:
        """Return whether a number, or true or false, is where only a text may be."""
        shape, value, _ = self.args
        return isinstance(value, int | float) and _members(shape) <= {str, type(None)}

    def __str__(self) -> str:
        shape, value, place = self.args
        if isinstance(value, list | Mapping):
            kind = "a list" if isinstance(value, list) else "a mapping"
            shown = kind if value else "empty"
        elif isinstance(value, int) and abs(value) >= 2**64:
            shown = "too large"
        else:
            shown = repr(value if isinstance(value, str | int | float | None) else type(value))
        text = f"{place or 'the document'} is {shown:.60}, must be {_in_words(shape)}"
        text += " (quote it)" if self.needs_text else ""
        if get_origin(shape) is Literal and isinstance(value, str):
            choices = [word for word in get_args(shape) if isinstance(word, str)]
            if near := difflib.get_close_matches(value, choices, n=1):
                text += f"; did you mean {near[0]}?"
        return text


def _members(shape: Any) -> set[Any]:
    """Return the shapes of a union without their bounds."""
    if get_origin(shape) is Annotated:
        return _members(get_args(shape)[0])
    if get_origin(shape) in (Union, types.UnionType):
        return set().union(*map(_members, get_args(shape)))
    return {shape}


def _in_words(shape: Any) -> str:
    origin, inner = get_origin(shape), get_args(shape)
    if origin is Annotated:
        limits = " and ".join(limit.words or limit.pattern for limit in inner[1:])
        return limits if isinstance(inner[1], Text) else f"{_in_words(inner[0])} {limits}"
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (Union, types.UnionType):
        numbers = {int, float} <= set(inner)
        return " or ".join(_in_words(member) for member in inner if not (numbers and member is int))
    if origin is Sequence or inner[1:] == (...,):
        return "a list"
    if origin is tuple:
        return f"a list of {len(inner)}"
    return _WORDS.get(shape, "a mapping")


def nearest(word: str, choices: Collection[str]) -> str:
    """Suggest the valid word most similar to `word` or, if none is similar, all of them."""
    near = difflib.get_close_matches(word, choices, n=1, cutoff=0.4)
    return f"did you mean {near[0]}?" if near else f"there are: {', '.join(choices)}."


def write(value: Any) -> Any:
    """Return the JSON form of a dataclass, a mapping, a list or a plain value."""
    if is_dataclass(value):
        shape: Any = type(value)
        layout = layout_of(shape)
        document: dict[str, Any] = {}
        for field in fields(shape):
            item = getattr(value, field.name)
            if layout.catch_all and field.name == layout.catch_all[0]:
                document |= write(item)
            elif field.name in layout.fields and not (
                field.metadata == OMITTED and item == field.default
            ):
                document[field.name] = write(item)
        return document
    if isinstance(value, Mapping):
        return {key: write(item) for key, item in value.items()}
    return [write(item) for item in value] if isinstance(value, list | tuple) else value
