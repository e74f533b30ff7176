"""Reads a suite folder: plan, runs, samples, records, and whether it is whole."""
