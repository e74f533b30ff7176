"""The page's own sentences and terms, from one catalogue a language: templates/<language>.yml.

In it are the page's frame, its first screen and what its script says. What a language lacks stays
English.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "templates"
SOURCE = "en"


@dataclass(frozen=True)
class Term:
    """A term, the words in which it appears, and its meaning in plain language."""

    name: str
    forms: tuple[str, ...]
    text: str

    @property
    def anchor(self) -> str:
        """The id of its explanation."""
        return f"term-{self.name.lower().replace(' ', '-').replace('%', 'percent')}"


@dataclass(frozen=True)
class Catalogue:
    """All sentences of one language by key, and the terms."""

    language: str
    texts: Mapping[str, str]
    terms: tuple[Term, ...]

    def say(self, key: str, **fields: str) -> str:
        """The sentence with its fields filled in. Raises KeyError for an unknown key or field."""
        return self.texts[key].format_map(fields)

    def starting(self, prefix: str) -> dict[str, str]:
        """The sentences below a prefix, by the rest of their keys."""
        return {k.removeprefix(prefix): v for k, v in self.texts.items() if k.startswith(prefix)}


@cache
def catalogue(language: str = SOURCE, folder: Path = FOLDER) -> Catalogue:
    """The catalogue of a language; English where it says nothing."""
    source, own = (_read(folder / f"{name}.yml") for name in (SOURCE, language))
    meanings: dict[str, dict[str, Any]] = {
        name: {**entry, **own["terms"].get(name, {})} for name, entry in source["terms"].items()
    }
    terms = (Term(name, tuple(e.get("forms", [name])), e["text"]) for name, e in meanings.items())
    return Catalogue(language, {**source["texts"], **own["texts"]}, tuple(terms))


def say(key: str, **fields: str) -> str:
    """A sentence in the page's language."""
    return catalogue().say(key, **fields)


def _read(path: Path) -> Mapping[str, Mapping[str, Any]]:
    found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return {key: found.get(key) or {} for key in ("texts", "terms")}
