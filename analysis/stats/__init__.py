"""Statistics over blocks: intervals, verdicts, and the number of blocks that are needed."""
