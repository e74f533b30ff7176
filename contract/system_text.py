r"""Decode text of the system: output of /proc, /sys, udev and programs has no guaranteed encoding.

The kernel cuts the name of a process within a letter; mount points and serial numbers are
arbitrary bytes. Bytes that are not UTF-8 become lone surrogates (PEP 383), so that a path that was
read still opens; `names.printable` and `files.json_text` show them as `\xb1`.
"""

from __future__ import annotations

from pathlib import Path


def decode(data: bytes) -> str:
    """Decode bytes without refusing or losing any."""
    return data.decode("utf-8", "surrogateescape")


def read(path: Path) -> str:
    """Return the text of a system file; raises OSError."""
    return decode(path.read_bytes())


def read_line(path: Path) -> str:
    """Return the stripped text of a file; raises OSError."""
    return read(path).strip()


def read_line_or_empty(path: Path) -> str:
    """Return the stripped text of a file, empty if it cannot be read."""
    try:
        return read_line(path)
    except OSError:
        return ""


def read_number(path: Path) -> int:
    """Return the whole number in a file; raises OSError, also if it holds none."""
    text = path.read_bytes()
    try:
        return int(text)
    except ValueError:
        raise OSError(not_a_number(text)) from None


def not_a_number(text: bytes) -> str:
    """Return the error text for a file with this content that should hold a number."""
    return f"the file holds {decode(text)!r} in place of a number"
