"""Checks of a first use: mistakes planted on a machine, and the predicted resolution of a night."""
