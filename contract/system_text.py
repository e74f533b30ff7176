"""Text of the system: what /proc, /sys, udev and programs say is bytes, in no promised encoding.

The kernel cuts the name of a process within a letter, mount points and serial numbers are whatever
somebody wrote. Bytes that are no UTF-8 are kept as lone surrogates (PEP 383), so that a path that
was read still opens; `names.printable` and `files.json_text` show them as `\\xb1`.
"""

from __future__ import annotations

from pathlib import Path


def decode(data: bytes) -> str:
    """Return the text of these bytes; none are refused or lost."""
    return data.decode("utf-8", "surrogateescape")


def read(path: Path) -> str:
    """Return the text of a file of the system; raises OSError."""
    return decode(path.read_bytes())
