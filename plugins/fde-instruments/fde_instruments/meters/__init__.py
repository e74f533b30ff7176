"""Drivers of external meters."""
