"""Meters and sources of energy that few machines have; an installed package of the testbed."""
