"""The workloads whose energy is measured."""
