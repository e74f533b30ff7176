"""Joules of a phase and their uncertainty, from counters or windows of power."""
