"""The wear of disks by a suite: what it writes, its share of a disk's life, and consent to it."""

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

# More than this share of a disk's life, or if that is unknown of its size, needs consent.
LIFE_SHARE = 0.01
MOST_FILLINGS = 3


@dataclass(frozen=True)
class Cost:
    """The most that a plan's preconditioning writes to a disk, and the disk's SMART data."""

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
        """The most bytes that are written; a round writes the extent at most once."""
        return (self.passes + self.rounds) * self.extent_bytes

    @property
    def life_bytes(self) -> float | None:
        """The bytes that the disk can write in its life: rated, extrapolated, or None."""
        if self.endurance_bytes:
            return self.endurance_bytes
        if not (self.written_bytes and self.used_percent):
            return None
        return self.written_bytes / (self.used_percent / 100)

    @property
    def reason(self) -> str:
        """The reason why the cost needs consent; empty if it needs none."""
        if self.life_bytes is None and self.most_bytes > MOST_FILLINGS * self.size_bytes:
            return f"its life is not known, and that is more than {MOST_FILLINGS} times its size"
        if self.life_bytes is not None and self.most_bytes > LIFE_SHARE * self.life_bytes:
            return f"that is more than {_percent(LIFE_SHARE)} of its life"
        return ""

    @property
    def sentences(self) -> str:
        """The cost in words."""
        text = (
            f"Preconditioning writes at most {decimal_size(self.most_bytes)} to disk {self.role} "
            f"(serial {self.serial}): {decimal_size(self.extent_bytes)} {self.passes} times, and "
            f"as much in each of at most {self.rounds} rounds. "
        )
        return text + self.share(self.most_bytes)

    def share(self, count: int) -> str:
        """Describe `count` bytes as shares of the disk's written bytes and of its life."""
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
    """Return the bytes that each disk has written in its life, by role, if it reports them."""
    return {disk.role: disk.lifetime.written_bytes for disk in disks if disk.lifetime}


def costs(plan: Plan, disks: Sequence[DiskAnswer]) -> list[Cost]:
    """Return the cost for each disk that a plan preconditions; `disks` are the agent's answers."""
    settings = plan.precondition
    return _costs(plan, disks, settings.passes, settings.rounds) if settings else []


def describe_writes(
    plan: Plan, disks: Sequence[DiskAnswer], run_bytes: Mapping[str, int]
) -> Iterator[str]:
    """Yield for each disk the minimum that the plan's runs write, and its share of the life.

    `run_bytes` are the bytes that a run writes, by entry; entries may be missing.
    """
    for cost in _costs(plan, disks, passes=0, rounds=0):
        names = {stack.name for stack in plan.configurations if stack.disk == cost.role}
        workloads = [run.workload for run in plan.runs if run.configuration in names]
        count = sum(run_bytes.get(name, 0) for name in workloads)
        text = f"The {len(workloads)} runs on disk {cost.role} write at least {decimal_size(count)}"
        if unknown := ", ".join(sorted(set(workloads) - set(run_bytes))):
            text += f" and what {unknown} write, which is not known without their files"
        yield f"{text}. {cost.share(count)}"


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
    """Require consent, by the disk's serial number, to each cost that needs it.

    The serial is in `confirmed`, or typed at the terminal (`ask`). Raises ControllerError.
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
        typed = ask(f"{cost.sentences}\nAs {cost.reason}, type the disk's serial to continue: ")
        if typed.strip() != cost.serial:
            raise ControllerError("serial-not-typed", role=cost.role)


def lifetime(written_bytes: int | None, used_percent: int | None) -> str:
    """Describe the SMART data as `by SMART 1.2 TB written in its life, …`; empty if unknown."""
    parts = []
    if written_bytes is not None:
        parts.append(f"{decimal_size(written_bytes)} written in its life")
    if used_percent is not None:
        parts.append(f"{used_percent} % of its life used")
    return f"by SMART {', '.join(parts)}" if parts else ""


def _percent(share: float) -> str:
    return f"{float(f'{share * 100:.3g}'):,g} %" if share >= 0.001 else "less than 0.1 %"
