"""Griffe extension: doctests in docstrings are shown as code, not as quotations."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.M | re.S)


class DoctestBlocks(Extension):
    """Fence each doctest."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
