"""What a new user meets: mistakes planted on a machine, and what a night could have found."""
