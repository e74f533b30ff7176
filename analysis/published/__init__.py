"""Figures of the papers, beside our own."""

from analysis import rounding  # noqa: F401  # before numpy
