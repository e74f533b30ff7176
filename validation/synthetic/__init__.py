"""Suite folders whose joules are known because they were made: for tests, examples, benchmarks."""
