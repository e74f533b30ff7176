"""Where in a JSON document a meter's figures stand: JSON Pointers (RFC 6901) by channel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from instrumentation.meters.networked import ONLY_CHANNEL

_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_CHANNEL = re.compile(r"[A-Za-z0-9_]+")


def pointers(name: str, given: object) -> dict[str, str]:
    """A setting that is one pointer or `{channel: pointer}`. Raises ValueError."""
    by_channel = {ONLY_CHANNEL: given} if isinstance(given, str) else given
    if not isinstance(by_channel, Mapping) or not by_channel:
        raise ValueError(
            f"{name} is a JSON Pointer such as /sensor/power, or one for each channel."
        )
    for channel, pointer in by_channel.items():
        if not _CHANNEL.fullmatch(str(channel)):
            raise ValueError(f"{name}: {channel!r} cannot name a channel: use letters and digits.")
        check_pointer(f"{name} of channel {channel}", pointer)
    return {str(channel): pointer for channel, pointer in by_channel.items()}


def check_pointer(name: str, pointer: object) -> None:
    """Raises ValueError where it is none."""
    if not isinstance(pointer, str) or not _POINTER.fullmatch(pointer):
        raise ValueError(f"{name} is {pointer!r}: write a JSON Pointer such as /sensor/power.")


def value_at(document: Any, pointer: str) -> Any:
    """What stands there, None where nothing does. The empty pointer is the whole document.

    Index 0 of what is no list is that itself: Tasmota gives a list for several sockets only.
    """
    found = document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, list) or key != "0":
            return None
    return found
