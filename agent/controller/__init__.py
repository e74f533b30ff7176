"""What runs on the controller: plans, sessions and seals of suites (its `steps` needs no more than Python)."""
