"""Reads a suite folder: plan, runs, samples, records, and whether it is whole."""

from analysis import rounding  # noqa: F401  # before numpy
