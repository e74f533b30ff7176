"""What the blocks allow to say: intervals, verdicts, how many more are needed."""

from analysis import rounding  # noqa: F401  # before numpy
