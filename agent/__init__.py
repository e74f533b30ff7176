"""What runs on the target."""
