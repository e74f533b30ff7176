"""Everything that gives a figure of time or energy, held against a known truth."""
