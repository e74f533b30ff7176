r"""Text of the system: what /proc, /sys, udev and programs print is bytes, in no promised encoding.

The kernel cuts the name of a process within a letter, mount points and serial numbers are whatever
somebody wrote. Bytes that are no UTF-8 are kept as lone surrogates (PEP 383), so that a path that
was read still opens; `names.printable` and `files.json_text` show them as `\xb1`.
"""

from __future__ import annotations

from pathlib import Path


def decode(data: bytes) -> str:
    """Return the text of these bytes; none are refused or lost."""
    return data.decode("utf-8", "surrogateescape")


def read(path: Path) -> str:
    """Return the text of a file of the system; raises OSError."""
    return decode(path.read_bytes())


def read_line(path: Path) -> str:
    """Return the text of a file without the white space around it; raises OSError."""
    return read(path).strip()


def read_line_or_empty(path: Path) -> str:
    """Return the text of a file without the white space around it, empty where it is not there."""
    try:
        return read_line(path)
    except OSError:
        return ""


def read_number(path: Path) -> int:
    """Return the whole number in a file; raises OSError, also where it holds none."""
    text = path.read_bytes()
    try:
        return int(text)
    except ValueError:
        raise OSError(not_a_number(text)) from None


def not_a_number(text: bytes) -> str:
    """Return what is wrong with a file of this content that should hold a number."""
    return f"the file holds {decode(text)!r} in place of a number"
