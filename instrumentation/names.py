"""What may become part of a path, a unit or a command where it comes from a file or a target."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def safe(name: object) -> bool:
    """Whether it is text of letters, digits, dot, dash, underscore, and no way out of a folder."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None
