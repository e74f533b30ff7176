"""All figures of time and energy, held against a known truth."""
