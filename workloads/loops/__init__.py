"""Programs that do measured work over and over, started and told by `workloads.loop`."""
