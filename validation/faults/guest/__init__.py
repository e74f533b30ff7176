"""What fault trials run inside the guest."""
