"""From joules to money, batteries and carbon."""
