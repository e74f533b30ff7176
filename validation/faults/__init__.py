"""Faults done to a suite in the virtual lab, for real, and what became of it.

One module holds the faults of one kind; `registry.FAULTS` lists them all. Each begins a trial (a
small suite of its own under the real controller), does its harm, lets the suite continue, and
returns an `Outcome`; `oracle` asks what was lost. Nothing of the product knows of it: kills come
from signals, from QEMU, and from a launcher that stands in for the agent's command in the guest.
"""
