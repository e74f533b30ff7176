"""Account of a phase's work: planned, reported and counted amounts, and the disk's traffic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from contract.documents import Phase
from contract.examination import Finding

NAME = "work"
# The permitted difference from the plan, as a share, if amounts need not be equal.
WITHIN: Mapping[str, float] = {"seconds": 0.1, "video_s": 0.05}
# Units whose excess is no fault: a slow request ends when it ends.
MAY_EXCEED = ("seconds",)
# Mount options with which a file system writes less than it gets (btrfs, f2fs, bcachefs).
_SHRINKING = {"compress", "compress-force", "compress_algorithm", "compression"}
# Without one of these, reading a file writes its access time.
_NO_ACCESS_TIMES = {"noatime", "ro"}
_SENTENCE = "The work of {phase} was not done as planned: {clause}."
_REMEDY = (
    "Check that the programs on the target are its distribution's own, what /etc/ld.so.preload and"
    " the file system's properties (lsattr) change, and what else uses the disk."
)
UNSEEN = "work-unseen"
_EXCUSES = {
    UNSEEN: (
        "What the disk moved in {phase} is not known: {clause}.",
        "Switch the disk's statistics on (queue/iostats).",
    ),
    "compression": (
        "What the disk moved in {phase} shows little, for its file system compresses: {clause}.",
        "Mount it without compression.",
    ),
    "access-times": (
        "Reading in {phase} wrote the times of access: {clause}.",
        "Mount the file system with noatime.",
    ),
    "integrity-journal": (
        "What the disk moved in {phase} shows little, for dm-integrity's journal holds data in"
        " memory: {clause}.",
        "Measure larger files, or set integrity_no_journal.",
    ),
}


def judge(
    phases: Iterable[Phase], mount_options: str = "", *, journalled: bool = False
) -> list[Finding]:
    """Compare the accounts of each phase; return one finding per difference, or one that is `ok`.

    A difference voids the run. It only warns where there is another reason for it: by its
    `mount_options` the file system compresses what it writes, or notes when a file was read;
    `journalled` data wait in dm-integrity's journal, which serves reads from memory.
    """
    options = {option.partition("=")[0] for option in mount_options.split(",") if option}
    excuses = {
        "compression": (options & _SHRINKING, "-less"),
        "access-times": (options and not options & _NO_ACCESS_TIMES, "written-more"),
        "integrity-journal": (journalled, "read-less"),
    }
    findings = []
    for phase in phases:
        for cause, unit, clause in _differences(phase):
            excuse = UNSEEN if cause == UNSEEN else ""
            for name, (holds, ending) in excuses.items():
                if holds and cause.startswith("disk-") and cause.endswith(ending):
                    excuse = name
            sentence, remedy = _EXCUSES.get(excuse, (_SENTENCE, _REMEDY))
            message = f"{sentence.format(phase=phase.name, clause=clause)} {remedy}"
            facts = {"phase": phase.name, "unit": unit, **_amounts(phase, unit)}
            severity = "warning" if excuse else "blocker"
            findings.append(Finding(NAME, "after", severity, False, cause, facts, None, message))
    return findings or [Finding(NAME, "after", "blocker", True, "", {}, None, "")]


def _differences(phase: Phase) -> Iterator[tuple[str, str, str]]:
    """Yield the cause, unit and clause of each difference in a phase."""
    for unit, planned in phase.planned.items():
        for how, amounts in (("reported", phase.reported), ("counted", phase.work)):
            amount = amounts.get(unit)
            if amount is None or abs(amount - planned) <= WITHIN.get(unit, 0.0) * planned:
                continue
            if amount < planned or unit not in MAY_EXCEED:
                clause = f"{amount:,.10g} {unit} were {how}, not the {planned:,.10g} planned"
                yield f"work-{how}", unit, clause
    for quantity, bounds in phase.disk_bounds.items():
        moved, verb = getattr(phase, f"disk_{quantity}"), quantity.removesuffix("_bytes")
        if moved is None:
            yield UNSEEN, "bytes", f"the kernel does not count what is {verb} on the disk"
        elif moved < bounds.least:
            clause = f"the disk has {verb} {moved:,.0f} B, not at least {bounds.least:,.0f} B"
            yield f"disk-{verb}-less", "bytes", clause
        elif bounds.most is not None and moved > bounds.most:
            clause = f"the disk has {verb} {moved:,.0f} B, not at most {bounds.most:,.0f} B"
            yield f"disk-{verb}-more", "bytes", clause


def _amounts(phase: Phase, unit: str) -> dict[str, str]:
    """Return every known amount of a unit in a phase, as facts."""
    amounts = {
        "planned": phase.planned.get(unit),
        "reported": phase.reported.get(unit),
        "counted": phase.work.get(unit),
        "disk_read_bytes": phase.disk_read_bytes,
        "disk_written_bytes": phase.disk_written_bytes,
    }
    return {name: f"{amount:.12g}" for name, amount in amounts.items() if amount is not None}
