"""What the blocks show: intervals, verdicts, how many more are needed."""

from analysis import rounding  # noqa: F401  # before numpy
