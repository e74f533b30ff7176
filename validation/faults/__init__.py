"""Real faults, injected into a suite in the virtual lab, and their outcomes.

One module holds the faults of one kind; `__main__.FAULTS` lists them all. Each is injected into a
trial (a small suite under the real controller), which then comes to its end; `oracle`
checks what was lost. Nothing of the product knows of it: kills come from signals, from QEMU, and
from a launcher that replaces the agent's command in the guest.
"""
