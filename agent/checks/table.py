"""Conditions that a fair run needs: the flat table of all checks (docs/checks.md is made of it)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent.checks import disks, machine, processor
from agent.checks.context import CheckContext, Observation


@dataclass(frozen=True)
class Change:
    """What must not change while a run lasts: `read` at both ends, judged by `judge(before, now)`.

    `read` gives None where the machine does not offer it. With `lasting` the time between the run
    before and this one counts, too.
    """

    read: Callable[[CheckContext], Any]
    judge: Callable[[Any, Any], Observation]
    lasting: bool = False


@dataclass(frozen=True)
class Wait:
    """What is waited for, how long, and what the check counts as afterwards.

    `word` heads the journal's line; after `limit_s` seconds the check has the severity `then`. A
    mere warning that was waited for in vain is waited for half as long the next time. `help` may do
    something about it: it gets the seconds waited so far and returns whether it did; `helped` then
    stands in the finding.
    """

    word: str
    limit_s: float
    then: str
    help: Callable[[CheckContext, float], bool] | None = None
    helped: str = ""


@dataclass(frozen=True)
class Check:
    """A row.

    `when` is `before`, `after` or `during` (then `look` is a Change); `severity` is `note`,
    `warning`, `wait` or `blocker`, which voids the run; `what` says what is looked at; `why`, a
    clause that the observation's facts and `value` fill, what is wrong; `remedy` the way out. A
    look that gives None found nothing to look at: no finding.
    """

    name: str
    when: str
    severity: str
    what: str
    why: str
    look: Callable[[CheckContext], Observation | None] | Change
    remedy: str
    wait: Wait | None = None


_HELD = Wait("held", 4 * 3600, "blocker")
_ROOM = Wait("room", 3600, "blocker")
_LOAD = Wait("load", 180, "warning")
_HEAT = Wait(
    "temperature", 180, "warning", processor.warm_up, "a short load was used to warm it up"
)
_DISK_HEAT = Wait("disk-temperature", 120, "warning")
_DISK_THROTTLED = Change(disks.throttles, disks.grown)
_RELINKED = Change(disks.links, disks.link_changed)
_THROTTLED = Change(partial(processor.throttles, part="core"), processor.throttled)
_PACKAGE_THROTTLED = Change(partial(processor.throttles, part="package"), processor.throttled)
_GREW = Change(disks.medium_errors, disks.grown)
_IO_GREW = Change(disks.io_errors, disks.grown)
_SLEPT = Change(machine.sleep_ns, machine.suspended)

TABLE: tuple[Check, ...] = (
    Check(
        *("held", "before", "wait", "the controller asks for no run: a meter is silent, …"),
        "{reason}",
        *(machine.held, "look at the meters and at the controller's disk", _HELD),
    ),
    Check(
        *("suite-room", "before", "wait", "free room where the target keeps the results"),
        "there is no room for the results on the target",
        *(machine.suite_room, "make room on the target's own disk", _ROOM),
    ),
    Check(
        *("load", "before", "wait", "CPU time that others take while the agent sleeps"),
        "something else runs on the target",
        *(machine.load, "stop it", _LOAD),
    ),
    Check(
        *("temperature", "before", "wait", "the package is as warm as at the suite's first run"),
        "the machine is {way} than at the suite's first reading",
        *(processor.temperature, "give the machine an even temperature, and air", _HEAT),
    ),
    Check(
        *("disk-temperature", "before", "wait", "the disks are as warm as at the first run"),
        "a disk is {way} than at the suite's first reading",
        *(disks.temperature, "give the disks an even temperature, and air", _DISK_HEAT),
    ),
    Check(
        *("mounted", "before", "blocker", "the configuration under test is mounted"),
        "the configuration is not mounted",
        *(machine.mounted, "look at the agent's log: entering failed"),
    ),
    Check(
        *("free-room", "before", "blocker", "free room on the file system under test"),
        "the file system under test is nearly full",
        *(machine.free_room, "make extent_bytes larger"),
    ),
    Check(
        *("powercap", "before", "blocker", "RAPL counters can be read"),
        "no RAPL counter can be read",
        *(machine.powercap, "modprobe intel_rapl_msr, run as root"),
    ),
    Check(
        *("governor", "before", "warning", "cpufreq's governor of every CPU"),
        "the governor is {value}",
        *(processor.governor, "set the governor to performance"),
    ),
    Check(
        *("turbo", "before", "warning", "frequencies beyond the base frequency"),
        "turbo is on",
        *(processor.turbo, "switch turbo off, or accept its noise"),
    ),
    Check(
        *("memory", "before", "warning", "memory that programs can still have"),
        "memory is low",
        *(machine.memory, "stop what fills the memory"),
    ),
    Check(
        *("swap", "before", "warning", "swap in use"),
        "memory is swapped out to a disk",
        *(machine.swap, "run swapoff -a"),
    ),
    Check(
        *("timers", "before", "warning", "timers, updaters, databases, desktop … are off"),
        "these may start work by themselves: {value}",
        *(machine.timers, "allow it by fde_stop, or systemctl stop them"),
    ),
    Check(
        *("disk-health", "before", "blocker", "SMART: the disks' own health report"),
        "the disk reports that it is failing: {value}",
        *(disks.health, "save what matters and replace the disk"),
    ),
    Check(
        *("disk-errors", "before", "warning", "SMART: media errors since the suite began"),
        "the disk counted errors of its medium since the suite began",
        *(disks.errors_of_suite, "look at smartctl -a, and consider replacing the disk"),
    ),
    Check(
        *("firmware", "before", "blocker", "firmware of the disks, against the suite's begin"),
        "the disks' firmware is not the one that the suite began with",
        *(disks.firmware, "put the firmware back, or make a new plan"),
    ),
    Check(
        *("disk-link", "before", "blocker", "link speed, width and queue depth of the disks"),
        "a disk's link is not the first one",
        *(disks.link, "look at dmesg for link errors, reconnect the disk, or make a new plan"),
    ),
    Check(
        *("c-states", "during", "warning", "idle states that the CPUs may enter"),
        "the C-states that are allowed changed during the run",
        *(
            Change(processor.idle_states, processor.idle_states_changed),
            "leave cpuidle alone while a suite runs",
        ),
    ),
    Check(
        *("throttle-core", "during", "blocker", "throttle counters of the cores"),
        "the processor throttled during the run",
        *(_THROTTLED, "cool the machine"),
    ),
    Check(
        *("throttle-package", "during", "blocker", "throttle counters of the package"),
        "the processor throttled during the run",
        *(_PACKAGE_THROTTLED, "cool the machine"),
    ),
    Check(
        *("clock", "during", "note", "the wall clock was not set, nor since the run before"),
        "the clock was set during the run or just before it (what is measured is monotonic time)",
        *(
            Change(machine.wall_offset_ns, machine.stepped, lasting=True),
            "nothing to fix; let chrony slew the clock instead of setting it",
        ),
    ),
    Check(
        *("suspend", "during", "blocker", "the machine did not sleep"),
        "the machine was suspended during the run",
        *(_SLEPT, "systemctl mask sleep.target suspend.target"),
    ),
    Check(
        *("stolen-time", "during", "blocker", "time that a virtual machine's host gave to others"),
        "the host ran something else for much of the run",
        *(
            Change(machine.stolen_s, machine.stolen),
            "stop what else runs on the host, or measure on a machine of its own",
        ),
    ),
    Check(
        *("kernel-errors", "during", "blocker", "the kernel reported no failure (of disks, …)"),
        "the kernel reported a failure during the run: {lines}",
        *(Change(machine.kernel_lines, machine.grave), "look at dmesg on the target"),
    ),
    Check(
        *("kernel-log", "during", "warning", "other kernel lines of level warning and worse"),
        "the kernel warned during the run: {lines}",
        *(
            Change(machine.kernel_lines, machine.suspicious),
            "look at dmesg; what is harmless belongs in agent/checks/kernel_log_allowed.txt",
        ),
    ),
    Check(
        *("disk-errors", "during", "blocker", "SMART: media errors"),
        "the disk counted errors of its medium during the run",
        *(_GREW, "look at smartctl -a, and replace the disk"),
    ),
    Check(
        *("disk-throttle", "during", "blocker", "SMART: thermal throttling of the disks"),
        "a disk was too hot and slowed down during the run",
        *(_DISK_THROTTLED, "cool the disk"),
    ),
    Check(
        *("disk-link", "during", "blocker", "link speed, width and queue depth of the disks"),
        "a disk's link or queue changed during the run",
        *(_RELINKED, "look at dmesg for link errors, and at the cable or slot"),
    ),
    Check(
        *("disk-io-errors", "during", "warning", "the kernel's count of failed disk commands"),
        "commands to the disk failed during the run",
        *(_IO_GREW, "look at dmesg on the target"),
    ),
    Check(
        *("swap", "after", "warning", "swap in use"),
        "memory is swapped out to a disk",
        *(machine.swap, "run swapoff -a, or choose smaller sizes"),
    ),
    Check(
        *("disk-health", "after", "blocker", "SMART: the disks' own health report"),
        "the disk reports that it is failing: {value}",
        *(disks.health, "save what matters and replace the disk"),
    ),
)
