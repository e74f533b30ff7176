"""The analysis's results, held against simulated suites whose truth is known."""
