"""Pages that hold a table written by a program, between two lines that mark its place."""

from __future__ import annotations


def insert(document: str, begin: str, end: str, table: str) -> str:
    """Return the document with the table between its two markers; raises ValueError without."""
    head, marker, after_begin = document.partition(begin)
    _, closed, tail = after_begin.partition(end)
    if not marker or not closed:
        raise ValueError(f"the document lacks the lines {begin!r} and {end!r}")
    return f"{head}{begin}\n\n{table}\n\n{end}{tail}"
