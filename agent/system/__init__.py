"""What the target's operating system is asked and told: programs, services, packages, locks."""
