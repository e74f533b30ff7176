"""Figures of the papers, beside our own."""
