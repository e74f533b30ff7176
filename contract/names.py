"""Validate and escape names, texts and folders from untrusted sources."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from contract.problem import Problem, wordings_of
from contract.schema import Text, nearest

PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_WORDS = "a name of letters, digits, dots, dashes and underscores"
Name = Annotated[str, Text(PATTERN, _WORDS)]
# Control characters, those that change the direction of the surrounding text, and invisible ones
# (Unicode 15, categories Cc, Cf, Cs, Zl and Zp; not the soft hyphen).
_UNPRINTABLE = re.compile(
    r"[^\n\t\x20-\x7e\u00a0-\U0010ffff]"
    r"|[\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
    r"|[\U000e0000-\U000e007f]"
)
SURROGATES = re.compile("[\ud800-\udfff]")


def safe(name: object) -> bool:
    """Return whether it is a text that matches `PATTERN` and leaves no folder."""
    return isinstance(name, str) and re.fullmatch(PATTERN, name) is not None


def unknown_name(kind: str, name: str, valid_names: Collection[str]) -> Problem:
    """Return the problem of a name that is not among the valid ones."""
    facts = {"what": kind, "name": name, "nearest": nearest(name, valid_names)}
    return Problem.from_wording(wordings_of("contract"), "unknown-name", facts)


def printable(text: str) -> str:
    r"""Escape what a terminal would obey as its code, `\x1b`."""
    return _UNPRINTABLE.sub(_code, text)


def as_utf8(text: str) -> str:
    r"""Escape bytes of an argument or path that are not UTF-8 as `\xe9`."""
    return SURROGATES.sub(_code, text)


def _code(match: re.Match[str]) -> str:
    byte = ord(match[0]) - 0xDC00  # PEP 383: how Python keeps a byte that is no UTF-8
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else ascii(match[0])[1:-1]


def printable_json(text: str) -> str:
    """Escape JSON for a terminal so that programs read the same texts from it."""
    return _UNPRINTABLE.sub(lambda match: json.dumps(match[0])[1:-1], text)


def sentence(text: str) -> str:
    """Return the text on one printable line."""
    return printable(" ".join(text.splitlines()))


def stranger(folder: Path) -> str:
    """Return a clause about the first entry that is no file or folder (a link, pipe or device).

    Empty without one: then every path below the folder without `..` stays inside. An unreadable
    folder counts as empty.
    """
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            entries = sorted(os.scandir(waiting.pop()), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif not entry.is_file(follow_symlinks=False):
                kind = "a link" if entry.is_symlink() else "neither a file nor a folder"
                return f"{os.path.relpath(entry.path, folder)} is {kind}"
    return ""
