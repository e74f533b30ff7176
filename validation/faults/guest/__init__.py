"""Scripts that fault trials run inside the guest."""
