"""What the target's operating system does for the agent: programs, services, packages, locks."""
