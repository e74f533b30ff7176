"""Our own share of the CPU time in each phase: what is measured must be the program, not us."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.suite.records import Phase, Run, Suite

LIMIT = 0.01  # of the busy CPU time; the target of the suite `paper`
# Of one CPU: if others keep it busy for less than this, a share of that says nothing.
AT_REST = 0.05


@dataclass(frozen=True)
class OwnShare:
    """Of one entry over all its runs: the agent's CPU seconds as a share, phase by phase.

    A phase at rest is held against its time on one CPU instead of its busy seconds. Runs of a phase
    are added up first: /proc/stat counts in hundredths of a second.
    """

    workload: str
    program: str
    by_phase: tuple[tuple[str, float, bool], ...]  # phase, share, at rest

    @property
    def worst(self) -> tuple[str, float, bool]:
        return max(self.by_phase, key=lambda one: one[1])

    @property
    def mean(self) -> float:
        return sum(share for _, share, _ in self.by_phase) / len(self.by_phase)

    @property
    def ok(self) -> bool:
        return self.worst[1] <= LIMIT


def own_shares(suite: Suite) -> list[OwnShare]:
    """By entry of the plan, where its runs tell CPU seconds at all."""
    found = []
    for name in suite.workloads:
        runs = [run for run in suite.runs if run.workload == name]
        phases: dict[str, list[Phase]] = {}
        for run in runs:
            for phase in run.measured_phases:
                if phase.own_cpu_s is not None and phase.cpu_busy_s is not None:
                    phases.setdefault(phase.name, []).append(phase)
        if phases:
            by_phase = tuple((phase, *_share(same)) for phase, same in phases.items())
            found.append(OwnShare(name, program_of(runs), by_phase))
    return found


def program_of(runs: Iterable[Run]) -> str:
    """What did the measured work, in the words of the runs."""
    return ", ".join(dict.fromkeys(run.program for run in runs if run.program))


def share(own_s: float, busy_s: float, took_s: float) -> tuple[float, bool]:
    """Own CPU seconds over busy ones, or over the time where nearly none were busy; which of them:
    whether it was at rest."""
    at_rest = busy_s - own_s < AT_REST * took_s
    return own_s / (took_s if at_rest else busy_s), at_rest


def _share(phases: Iterable[Phase]) -> tuple[float, bool]:
    same = list(phases)
    return share(
        sum(phase.own_cpu_s or 0.0 for phase in same),
        sum(phase.cpu_busy_s or 0.0 for phase in same),
        sum(phase.duration_s for phase in same),
    )
