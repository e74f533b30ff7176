"""All faults, in the order in which they are tried: the quick ones first."""

from __future__ import annotations

from validation.faults import away, cuts, full, kills, upsets
from validation.faults.fault import Fault

FAULTS: tuple[Fault, ...] = (
    kills.AGENT,
    kills.RECORDER,
    kills.CONTROLLER,
    upsets.CTRL_C,
    cuts.WATCHDOG,
    upsets.CLOCK,
    upsets.DRIVE,
    upsets.RUN_HANGS,
    upsets.KERNEL_HANGS,
    full.CONTROLLER,
    full.TARGET,
    away.NETWORK,
    away.METER,
    cuts.POWER,
)
