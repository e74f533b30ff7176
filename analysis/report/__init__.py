"""The report as a page: words, tables, sections, and how the notebook becomes HTML."""

from analysis import rounding  # noqa: F401  # before numpy
