"""The agent: everything that runs on the target."""
