"""Joules of a phase and their uncertainty, from counters or windows of power."""

from analysis import rounding  # noqa: F401  # before numpy
