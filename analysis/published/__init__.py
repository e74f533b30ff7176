"""Figures of the papers, compared with ours."""

from analysis import rounding  # noqa: F401  # before numpy
