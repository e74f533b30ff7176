"""Drivers of external power meters: bytes in, records out."""
