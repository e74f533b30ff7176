"""Storage stacks: which disk, is it safe, and the ways between configurations."""
