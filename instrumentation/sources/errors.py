"""What goes wrong when a source of energy is opened."""

from __future__ import annotations


class SourceError(Exception):
    """A source cannot be used here; the message is a sentence with the way out."""
