"""Meters from the other side of the wire, byte for byte, with faults on request."""
