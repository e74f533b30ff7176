"""From a sealed suite folder to joules, verdicts and a report."""
