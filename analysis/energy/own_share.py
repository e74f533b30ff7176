"""Our own share of the CPU time in each phase: what is measured must be the program, not us."""

from __future__ import annotations

from typing import NamedTuple

from analysis.suite.records import Phase, Suite

LIMIT = 0.01  # of the busy CPU time; the target of the suite `paper`
# Of one CPU: if others keep it busy for less than this, a share of that says nothing.
AT_REST = 0.05


class OwnShare(NamedTuple):
    """The agent's CPU seconds in a phase of a workload, as a share of the busy ones.

    A phase at rest is held against its time on one CPU instead. Runs of a phase are added up first:
    /proc/stat counts in hundredths of a second.
    """

    workload: str
    phase: str
    share: float
    at_rest: bool


def own_shares(suite: Suite) -> list[OwnShare]:
    """Return shares by workload and phase, where its runs have CPU seconds at all."""
    phases: dict[tuple[str, str], list[Phase]] = {}
    for run in suite.runs:
        for phase in run.measured_phases:
            if phase.own_cpu_s is not None and phase.cpu_busy_s is not None:
                phases.setdefault((run.workload, phase.name), []).append(phase)
    shares = []
    for names, same in phases.items():
        own_s, busy_s = (sum(getattr(p, key) for p in same) for key in ("own_cpu_s", "cpu_busy_s"))
        took_s = sum(phase.duration_s for phase in same)
        shares.append(OwnShare(*names, *share(own_s, busy_s, took_s)))
    return shares


def share(own_s: float, busy_s: float, took_s: float) -> tuple[float, bool]:
    """Return own CPU seconds over busy ones, or over the time where nearly none were busy.

    Which of them: whether it was at rest.
    """
    at_rest = busy_s - own_s < AT_REST * took_s
    return own_s / (took_s if at_rest else busy_s), at_rest
