"""Simulators of the meters."""
