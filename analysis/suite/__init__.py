"""Read a suite folder: its plan, runs, samples and records, and whether it is complete."""
