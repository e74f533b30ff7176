"""Their sides of the wire."""
