"""How much of a disk's life a suite takes, the consent that much of it needs, and its limit."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from agent.needs import decimal_size
from contract.disks import DiskAnswer
from contract.errors import ControllerError
from contract.places import command_line
from contract.plan import Plan
from controller.targets.first_writes import Ask

# More than this share of its life asks first; where that is not known, this many times its size.
LIFE_SHARE = 0.01
MOST_FILLINGS = 3


@dataclass(frozen=True)
class Cost:
    """What a plan's preconditioning writes to a disk at most, and what its SMART data report."""

    role: str
    serial: str
    size_bytes: int
    extent_bytes: int
    passes: int
    rounds: int
    written_bytes: int | None = None
    used_percent: int | None = None
    endurance_bytes: int | None = None

    @property
    def most_bytes(self) -> int:
        """Bytes that it writes at most: a round writes the extent once at most."""
        return (self.passes + self.rounds) * self.extent_bytes

    @property
    def life_bytes(self) -> float | None:
        """Bytes that it may write in its life, as rated, else extrapolated; None if unknown."""
        if self.endurance_bytes:
            return self.endurance_bytes
        if not (self.written_bytes and self.used_percent):
            return None
        return self.written_bytes / (self.used_percent / 100)

    @property
    def reason(self) -> str:
        """Why it needs consent; empty where it does not."""
        if self.life_bytes is None and self.most_bytes > MOST_FILLINGS * self.size_bytes:
            return f"its life is not known, and that is more than {MOST_FILLINGS} times its size"
        if self.life_bytes is not None and self.most_bytes > LIFE_SHARE * self.life_bytes:
            return f"that is more than {_percent(LIFE_SHARE)} of its life"
        return ""

    @property
    def sentences(self) -> str:
        """The cost, in words."""
        text = (
            f"Preconditioning writes at most {decimal_size(self.most_bytes)} to disk {self.role} "
            f"(serial {self.serial}): {decimal_size(self.extent_bytes)} {self.passes} times, and "
            f"as much in each of at most {self.rounds} rounds. "
        )
        return text + self.share(self.most_bytes)

    def share(self, count: int) -> str:
        """How much so many bytes are of what the disk has written and of its life, in words."""
        if not self.written_bytes:
            return "The disk does not report what it has written so far."
        share = _percent(count / self.written_bytes)
        text = (
            f"That is {share} of the {decimal_size(self.written_bytes)} that it has written so far"
        )
        if self.life_bytes is None:
            return f"{text}; it does not report yet how much of its life is used."
        share = _percent(count / self.life_bytes)
        return f"{text}, and {share} of its life, of which {self.used_percent} % is used by SMART."


def written(disks: Sequence[DiskAnswer]) -> dict[str, int | None]:
    """Return what each disk that reports it has written in its life, by role."""
    return {disk.role: disk.lifetime.written_bytes for disk in disks if disk.lifetime}


def costs(plan: Plan, disks: Sequence[DiskAnswer]) -> list[Cost]:
    """Return the cost for each disk that a plan preconditions; `disks` as the agent found them."""
    wanted = plan.precondition
    return _costs(plan, disks, wanted.passes, wanted.rounds) if wanted else []


def describe_writes(
    plan: Plan, disks: Sequence[DiskAnswer], run_bytes: Mapping[str, int]
) -> Iterator[str]:
    """Yield what the plan's runs write to each disk at least, and how much of its life that is.

    `run_bytes` has what a run of each workload writes, as far as that is known.
    """
    for cost in _costs(plan, disks, passes=0, rounds=0):
        workloads, count = _runs_on(plan, cost.role, run_bytes)
        text = f"The {len(workloads)} runs on disk {cost.role} write at least {decimal_size(count)}"
        if unknown := ", ".join(sorted(set(workloads) - set(run_bytes))):
            text += f" and what {unknown} write, which is not known without their files"
        yield f"{text}. {cost.share(count)}"


def _runs_on(plan: Plan, role: str, run_bytes: Mapping[str, int]) -> tuple[list[str], int]:
    """Return the workloads of the runs on a disk, and what they write as far as known."""
    carried = {each.name for each in plan.configurations if each.disk == role}
    workloads = [run.workload for run in plan.runs if run.configuration in carried]
    return workloads, sum(run_bytes.get(name, 0) for name in workloads)


def _costs(plan: Plan, disks: Sequence[DiskAnswer], passes: int, rounds: int) -> list[Cost]:
    lifetimes = {disk.role: asdict(disk.lifetime) for disk in disks if disk.lifetime}
    return [
        Cost(
            disk.role,
            disk.serial,
            disk.size_bytes,
            plan.extent.size_bytes,
            passes,
            rounds,
            endurance_bytes=disk.endurance_bytes,
            **lifetimes.get(disk.role, {}),
        )
        for disk in plan.disks_used
    ]


def require_allowed(costs: Sequence[Cost], confirmed: Collection[str], ask: Ask | None) -> None:
    """Require consent to each cost that needs it, by the disk's serial number.

    It is in `confirmed`, or typed at a terminal (`ask`, None without one). Raises ControllerError.
    """
    for cost in costs:
        if not cost.reason or cost.serial in confirmed:
            continue
        if ask is None:
            raise ControllerError(
                "wear-needs-consent",
                sentences=cost.sentences,
                reason=cost.reason,
                command=command_line("run", confirm=shlex.quote(cost.serial)),
            )
        typed = ask(
            f"{cost.sentences}\nAs {cost.reason}, type the disk's serial number to continue: "
        )
        if typed.strip() != cost.serial:
            raise ControllerError("serial-not-typed", role=cost.role)


def lifetime(written_bytes: int | None = None, used_percent: int | None = None) -> str:
    """Return `by SMART 1.2 TB written in its life, 3 % of its life used`; empty if unknown."""
    parts = (
        [f"{decimal_size(written_bytes)} written in its life"] if written_bytes is not None else []
    )
    parts += [f"{used_percent} % of its life used"] if used_percent is not None else []
    return f"by SMART {', '.join(parts)}" if parts else ""


def _percent(share: float) -> str:
    return f"{float(f'{share * 100:.3g}'):,g} %" if share >= 0.001 else "less than 0.1 %"
