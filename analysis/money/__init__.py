"""From joules to money, batteries and carbon."""

from analysis import rounding  # noqa: F401  # before numpy
