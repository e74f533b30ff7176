"""Whether disks bias the answer for or against a storage stack: simulated suites on models."""
