"""How we know: benchmarks, fault trials and simulated suites held against a known truth."""
