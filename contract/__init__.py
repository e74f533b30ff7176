"""Formats of everything in a suite folder; imports only the standard library."""
