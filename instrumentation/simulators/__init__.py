"""Meters from the other side of the wire, byte for byte."""
