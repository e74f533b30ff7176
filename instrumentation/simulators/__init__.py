"""Simulators of meters, byte for byte."""
