"""Clocks, sources, meters and the recorder."""
