"""Texts of the page's frame, first screen and script: templates/en.yml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

FILE = Path(__file__).parent / "templates" / "en.yml"
LANGUAGE = "en"


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
    """All sentences by key, names of codes by table, and the terms."""

    texts: Mapping[str, str]
    tables: Mapping[str, Mapping[str, str]]
    terms: tuple[Term, ...]


@cache
def catalogue() -> Catalogue:
    """Return the catalogue, read once."""
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    terms = []
    for key, text in document["terms"].items():
        name, *others = key.split(" | ")
        terms.append(Term(name, (f"{name}s", name, *others), text))
    return Catalogue(document["texts"], document["tables"], tuple(terms))


def say(key: str, **fields: str) -> str:
    """Return a sentence with its fields filled in. Raises KeyError for an unknown key or field."""
    return catalogue().texts[key].format_map(fields)
