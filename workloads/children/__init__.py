"""Programs that repeat measured work, so that the agent only waits.

`workloads.child` starts and controls them; each has the name of its workload.
"""
