"""Why ours may differ from a paper's figures: sentences that facts of this suite call for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from analysis.energy.trust import program_of
from analysis.published import reference
from analysis.published.beside import PLAIN, Beside
from analysis.suite.documents import mapping
from analysis.suite.records import MEASURED, MODELLED, Suite

AES, EMULATOR = "aes", "QEMU"


@dataclass(frozen=True)
class Hardware:
    """A processor or drive of a paper; `aes` and `rotational` are yes, no, unknown or empty.

    `note` says how that is known.
    """

    paper: str
    kind: str
    name: str
    aes: str
    rotational: str
    note: str


@cache
def hardware() -> tuple[Hardware, ...]:
    """What data/reference/hardware.csv knows of the papers' machines."""
    return tuple(Hardware(**row) for row in reference.rows("hardware"))


def reasons(suite: Suite, rows: Sequence[Beside]) -> list[str]:
    """Sentences on machine, instructions, drive, program and sizes, by what the suite recorded."""
    return [*_machine(suite), *_aes(suite, rows), *_drive(suite, rows), *_program(suite, rows)]


def _machine(suite: Suite) -> Iterator[str]:
    origin = str(suite.plan.get("origin", ""))
    if EMULATOR in str(_cpu(suite).get("model") or ""):
        yield (
            "This suite ran on an emulated machine: its times are those of the emulation and its "
            "joules those of a model, so that neither speaks for any hardware."
        )
    elif origin == MODELLED:
        yield "The joules of this suite are those of a model; its times are the machine's."
    elif origin not in ("", MEASURED):
        yield "No machine ran in this suite: its figures were made up."
    scale = str(suite.plan.get("scale", ""))
    if scale.startswith("lab"):
        yield "Its sizes are those of the scale lab, smaller than the paper's."


def _aes(suite: Suite, rows: Sequence[Beside]) -> Iterator[str]:
    """Where AES is compared with anything, its instructions decide."""
    if not any("AES" in row.here.member for row in rows):
        return
    flags = _cpu(suite).get("flags")
    if not isinstance(flags, list):
        yield "Whether the processor here has AES instructions is not recorded."
        return
    model = str(_cpu(suite).get("model") or "the processor here")
    machines = {row.published.machine for row in rows}
    then = {
        one.aes
        for one in hardware()
        if one.kind == "processor"
        and one.paper == rows[0].published.paper
        and (one.name in machines or not one.name)
    }
    here = "has AES instructions" if AES in flags else "has no AES instructions"
    said = {
        "no": "the paper's had none",
        "yes": "so had the paper's" if AES in flags else "the paper's had them",
        "unknown": "whether the paper's had them is not known",
    }
    named = {row.here.member for row in rows}
    others = any("AES" not in name and name not in PLAIN for name in named)
    for known in ("no", "yes", "unknown"):
        if known in then:
            also = "so had the paper's: none" if known == "no" and AES not in flags else said[known]
            moral = _moral(known, AES in flags, others)
            yield f"The processor here ({model}) {here}; {also}{moral}."


def _moral(then: str, now: bool, others: bool) -> str:
    if then == "no" and now:
        return f", so that AES {'gains here on all other ciphers' if others else 'costs less here'}"
    if then == "yes" and not now:
        lost = "loses here against all other ciphers" if others else "costs more here"
        return f", so that AES {lost}"
    return ""


def _drive(suite: Suite, rows: Sequence[Beside]) -> Iterator[str]:
    """Only where the drive has a part in the figures: the paper names one."""
    devices = {row.published.device for row in rows} - {""}
    known = [one for one in hardware() if one.kind == "drive" and one.name in devices]
    if not known:
        return
    disks = mapping(suite.before.get("disks"))
    plain = mapping(disks.get(suite.disk_of(suite.baseline or "")))
    turning = plain.get("rotational")
    if turning not in ("0", "1"):
        yield "What kind of drive there is here is not recorded."
        return
    model = str(plain.get("model") or "without a name")
    here = "turns" if turning == "1" else "has no moving parts"
    then = {one.rotational for one in known}
    others = {
        frozenset({"yes"}): "the paper's turned",
        frozenset({"no"}): "the paper's had none either"
        if turning == "0"
        else "the paper's do not",
        frozenset({"yes", "no"}): "the paper has drives of both kinds",
    }
    slow = then == {"yes"} and turning == "0"
    moral = ", and its waiting hid a part of what encryption costs" if slow else ""
    yield f"The drive here ({model}) {here}; {others[frozenset(then)]}{moral}."


def _program(suite: Suite, rows: Sequence[Beside]) -> Iterator[str]:
    """Who did the work then and now."""
    entries = {row.entry for row in rows}
    here = program_of(run for run in suite.runs if run.workload in entries)
    then = sorted({row.published.software for row in rows} - {"", "drive", "dm-crypt"})
    if here and then:
        yield f"The work was done by {', '.join(then)} there, and by {here} here."
    elsewhere = sum(bool(row.stands_in) for row in rows)
    if elsewhere:
        yield (
            f"{elsewhere} of these figures are for a size that this suite has not: the nearest one "
            "stands in, in proportion."
        )


def _cpu(suite: Suite) -> Mapping[str, Any]:
    return mapping(suite.before.get("cpu"))
