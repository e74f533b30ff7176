"""Sources of energy on the target: counters of the processor."""
