"""What runs on the target, and the controller's side of a suite."""
