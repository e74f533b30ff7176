"""What the blocks allow to say: intervals, verdicts, how many more are needed."""
