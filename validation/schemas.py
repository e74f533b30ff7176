"""JSON Schema (2020-12) of documents: `python -m validation.schemas` writes `data/schema/`."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from contract.command_results import COMMANDS, Failure
from contract.documents import DOCUMENTS
from contract.places import SCHEMAS
from contract.schema import Items, Range, Text, is_mapping, layout_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema(shape: Any) -> dict[str, Any]:  # noqa: PLR0911 - one a kind
    """Return the JSON Schema of a document of this shape."""
    origin, inner = get_origin(shape), get_args(shape)
    if origin is Annotated:
        bounded = schema(inner[0])
        for limit in inner[1:]:
            bounded |= _keywords(limit)
        return bounded
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema(each) for each in inner]}
    if origin is Sequence:
        origin, inner = tuple, (*inner, ...)
    if origin is tuple:
        if inner[1:] == (...,):
            return {"type": "array", "items": schema(inner[0])}
        same = {"minItems": len(inner), "maxItems": len(inner)}
        return {"type": "array", "prefixItems": [schema(each) for each in inner], **same}
    if is_mapping(origin):
        names = {} if inner[0] is str else {"propertyNames": schema(inner[0])}
        return {"type": "object", "additionalProperties": schema(inner[1]), **names}
    if isinstance(shape, type) and is_dataclass(shape):
        layout = layout_of(shape)
        others = layout.catch_all and schema(get_args(layout.catch_all[1])[1] | None)
        return {
            "description": " ".join((shape.__doc__ or "").partition("\n\n")[0].split()),
            "type": "object",
            "properties": {name: schema(hint) for name, (hint, _) in layout.fields.items()},
            "required": [name for name, (_, needed) in layout.fields.items() if needed],
            **({"additionalProperties": others} if others else {}),
        }
    return {} if shape is Any else {"type": TYPES[shape]}


def _keywords(limit: Range | Text | Items) -> dict[str, Any]:
    match limit:
        case Text():
            return {"pattern": f"^(?:{limit.pattern})$"}
        case Items():
            least = {"minItems": limit.least, "minProperties": limit.least}
            most = {"maxItems": limit.most, "maxProperties": limit.most}
            return least | (most if limit.most is not None else {})
    bounds = {"minimum": limit.least, "maximum": limit.most}
    bounds |= {"exclusiveMinimum": limit.above, "exclusiveMaximum": limit.below}
    return {key: bound for key, bound in bounds.items() if bound is not None}


def texts() -> dict[str, str]:
    """Return the files of `data/schema/`, by name."""
    printed = {
        f"fde-{name}": (f"fde {name} --json", shape | Failure) for name, shape in COMMANDS.items()
    }
    return {
        f"{name}.json": json.dumps(
            {"$schema": DIALECT, "title": title, **schema(shape)}, ensure_ascii=False, indent=1
        )
        + "\n"
        for name, (title, shape) in {**DOCUMENTS, **printed}.items()
    }


def main() -> int:
    """Write them."""
    SCHEMAS.mkdir(exist_ok=True)
    for name, text in texts().items():
        (SCHEMAS / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
