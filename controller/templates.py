"""Jinja templates of the controller's packages, each beside the module that fills it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template


@cache
def load_template(path: Path, *filters: Callable[..., Any]) -> Template:
    """Return a template, with filters called as their functions are; HTML escapes its values."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # not for every command

    environment = Environment(
        loader=FileSystemLoader(path.parent),
        autoescape=".html" in path.suffixes,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {function.__name__: function for function in filters}
    return environment.get_template(path.name)
