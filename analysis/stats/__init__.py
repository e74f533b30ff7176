"""Statistics over blocks: intervals, verdicts, and the number of blocks that are needed."""

from analysis import rounding  # noqa: F401  # before numpy
