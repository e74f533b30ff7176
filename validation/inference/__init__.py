"""What the analysis says, held against simulated suites whose truth is known."""
