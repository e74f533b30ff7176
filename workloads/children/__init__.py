"""Programs that do measured work over and over, so that the agent only waits.

Each is started and asked by `workloads.child`; its module is called as the workload is.
"""
