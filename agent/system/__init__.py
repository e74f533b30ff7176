"""Services of the target's operating system: programs, services, packages, locks."""
