"""Synthetic suite folders of known joules, for tests, examples and benchmarks."""
