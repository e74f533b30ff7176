"""Where a published figure has its like in our suites: workload, phases, configuration, amount."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from statistics import fmean
from typing import Any

import polars as pl

from analysis.energy.energy import WORK
from analysis.published.reference import Published
from analysis.stats.summary import BlockValues
from analysis.suite.records import SYSTEM

Row = Mapping[str, Any]
COLUMNS = ("duration_s", "energy_j", "power_w")


@dataclass(frozen=True)
class RunHere:
    """One run's rows of the energy table by phase."""

    block: int
    phases: Mapping[str, Row]


@dataclass(frozen=True)
class RunsHere:
    """All runs of a suite; the system's rows, or those of any component where no meter saw it.

    A duration is the same for every component, so that any of them will do; joules of another
    component are not shown as the system's.
    """

    energy: pl.DataFrame

    @cached_property
    def system(self) -> bool:
        """Whether a meter saw the whole machine."""
        return SYSTEM in set(self.energy["component"])

    @cached_property
    def by(self) -> Mapping[tuple[str, str], Sequence[RunHere]]:
        """By entry of the plan and configuration."""
        there = self.energy["component"].unique().sort().to_list()
        if not there:
            return {}
        component = SYSTEM if self.system else there[0]
        names = ["workload", "configuration", "run_id", "block", "phase", *COLUMNS, *WORK]
        rows = self.energy.filter(pl.col("component") == component).select(names)
        runs: dict[tuple[str, str, str], dict[str, Row]] = {}
        for row in rows.iter_rows(named=True):
            key = row["workload"], row["configuration"], row["run_id"]
            runs.setdefault(key, {})[row["phase"]] = row
        found: dict[tuple[str, str], list[RunHere]] = {}
        for (workload, configuration, _), phases in runs.items():
            block = int(next(iter(phases.values()))["block"])
            found.setdefault((workload, configuration), []).append(RunHere(block, phases))
        return found

    def values(self, entry: str, configuration: str, here: Here, column: str) -> BlockValues:
        """By block the sum over the parts of a quantity for the amount of work that is wanted.

        A run without one of the parts has no value; runs of a block are averaged.
        """
        blocks: dict[int, list[float]] = {}
        for run in self.by.get((entry, configuration), ()):
            parts = [_of(run, part, column) for part in here.parts]
            if all(value is not None for value in parts):
                blocks.setdefault(run.block, []).append(math.fsum(v for v in parts if v))
        return {block: fmean(values) for block, values in sorted(blocks.items())}

    def distance(self, entry: str, configuration: str, here: Here) -> float:
        """How far the sizes of the entry's phases are from those wanted, as a logarithm."""
        runs = self.by.get((entry, configuration), ())
        sized = [part for part in here.parts if part.size]
        used = [
            (part.size or 1, _chosen(run.phases, part)[1]) for run in runs[:1] for part in sized
        ]
        return max((abs(math.log(number / size)) for size, number in used if number), default=0.0)

    def stands_in(self, entry: str, configuration: str, here: Here) -> tuple[int, ...]:
        """The numbers of phases that stand in for others that are not there."""
        runs = self.by.get((entry, configuration), ())
        if not runs:
            return ()
        sized = [part for part in here.parts if part.size is not None]
        used = [(part.size, _chosen(runs[0].phases, part)[1]) for part in sized]
        others = (number for size, number in used if number is not None and number != size)
        return tuple(dict.fromkeys(others))


def of_seconds(here: Here, seconds: BlockValues) -> BlockValues:
    """The figure in the paper's unit from the seconds (or joules) of the parts."""
    if here.numerator is None:
        return {block: value * here.factor for block, value in seconds.items()}
    return {block: here.numerator / value for block, value in seconds.items() if value > 0}


def joules_of(here: Here) -> tuple[Here, str]:
    """The same work as a question for joules, and what they are of."""
    units = {part.unit for part in here.parts}
    if units == {"bytes"}:
        mb = sum(part.amount for part in here.parts) / 2**20
        scaled = tuple(replace(part, amount=part.amount / mb) for part in here.parts)
        return replace(here, parts=scaled), "MB"
    one = {"operations": "operation", "derivations": "derivation", "files": "file"}
    return here, one.get("".join(units), "")


def _of(run: RunHere, part: Part, column: str) -> float | None:
    """The quantity for the part's amount of work, the mean of the phases that it means."""
    if part.size is not None:
        name, _ = _chosen(run.phases, part)
        names = [name] if name else []
    else:
        names = [name for name, _ in _matching(part.phase, tuple(run.phases))]
    values = [_in_phase(run.phases[name], part, name, column) for name in names]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _in_phase(row: Row, part: Part, name: str, column: str) -> float | None:
    value = row[column]
    if value is None or not part.unit or column == "power_w":
        return None if value is None else float(value)
    done = row.get(part.unit)
    if not done:
        return None
    amount = part.amount
    if part.scaled and part.size:
        amount *= part.size / _matching(part.phase, (name,))[0][1]
    return float(value) * amount / float(done)


def _chosen(phases: Mapping[str, Row], part: Part) -> tuple[str | None, int | None]:
    """The phase of the part's size, else the one of the nearest by its logarithm."""
    sizes = {number: name for name, number in _matching(part.phase, tuple(phases))}
    if not sizes or part.size is None:
        return None, None
    wanted = part.size
    nearest = min(sizes, key=lambda size: (abs(math.log(size / wanted)), size))
    return sizes[nearest], nearest


@lru_cache(maxsize=4096)
def _matching(pattern: str, names: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """The phases that a pattern holds, with the number in its first group, 0 without one."""
    found = ((name, re.fullmatch(pattern, name)) for name in names)
    return tuple((name, int(m[1]) if m.lastindex else 0) for name, m in found if m)


MB, KB = 2**20, 2**10
SECONDS = {"s": 1.0, "ms": 1e-3, "min": 60.0}
# Mb/s stands for MB/s in the one paper that has it (data/reference/README.md).
BYTES_A_SECOND = {
    **{"B/s": 1.0, "KB/s": KB, "MB/s": MB, "Mb/s": MB, "GB/s": KB * MB, "KB/ms": 1000 * KB},
}
A_SECOND = {"IO/s": 1.0, "kIO/s": 1000.0}
DIRECT = {"energy": "energy_j", "power": "power_w", "time": "duration_s"}


@dataclass(frozen=True)
class Part:
    """`amount` of the work `unit` in a phase; of the whole phase where `unit` is empty.

    `phase` is a pattern of `re` that holds the whole name. Where `size` is given, its first group
    is a number, and the phase with the nearest number stands in for one that is not there; the
    amount then follows from what that phase did (`scaled`: in proportion to the number).
    """

    phase: str
    unit: str = ""
    amount: float = 1.0
    size: int | None = None
    scaled: bool = False


@dataclass(frozen=True)
class Here:
    """Our like of a published figure.

    `column` is what is added up over the parts, joules or seconds. Of a rate the figure is
    `numerator` (in the paper's unit, times seconds) over these seconds; else it is the sum, times
    `factor`. `configuration` is one of the reference tables, empty where any will do. `member` is
    what is compared with the others of its group, `note` what differs from the paper's.
    """

    workload: str
    parts: tuple[Part, ...]
    member: str
    configuration: str = ""
    column: str = "duration_s"
    factor: float = 1.0
    numerator: float | None = None
    note: str = ""


def likes(figure: Published) -> list[Here]:
    """All that we have of one figure: none, one, or several (RSA is done in two ways)."""
    if figure.workload and figure.phase:
        return list(_named(figure))
    of = PAPERS.get(figure.paper)
    return [] if of is None else list(of(figure))


def plain_unit(unit: str) -> tuple[float, str]:
    """How many seconds, bytes or operations a second a paper's unit is, and which of them.

    So that figures of one table in different units (MB/s, GB/s) can be compared.
    """
    for units, one in ((SECONDS, "s"), (BYTES_A_SECOND, "B/s"), (A_SECOND, "IO/s")):
        if unit in units:
            return units[unit], one
    return 1.0, unit


def member_of(figure: Published) -> str:
    """What is compared: the algorithm and, where there is one, its mode."""
    return ", ".join(filter(None, [figure.subject, figure.mode]))


def _named(figure: Published) -> Iterator[Here]:
    """A figure that names its own phase: the paper that this testbed follows."""
    if figure.quantity not in DIRECT:
        return
    factor = 1.0 if figure.quantity != "time" else 1 / SECONDS.get(figure.unit, 0.0) or 0.0
    one = Here(
        figure.workload,
        (Part(figure.phase),),
        figure.subject,
        figure.configuration,
        DIRECT[figure.quantity],
        factor,
    )
    if figure.size_bytes and figure.workload == "file_io":
        one = replace(one, parts=(Part(figure.phase, "files"),))  # a phase holds several files
    if figure.workload == "kernel_grep":
        one = replace(one, parts=(Part(r"grep-\d+"),))  # one search, of however many copies
    yield one


def _timed(figure: Published, here: Here) -> Here | None:
    """With the paper's unit: a time, or a rate over the work that the parts stand for."""
    if figure.quantity in ("time", "average_time", "access_time"):
        return replace(here, factor=1 / SECONDS[figure.unit]) if figure.unit in SECONDS else None
    units = {"speed": BYTES_A_SECOND, "throughput": BYTES_A_SECOND, "burst_rate": BYTES_A_SECOND}
    units["io_rate"] = A_SECOND
    unit = units.get(figure.quantity, {}).get(figure.unit)
    if unit is None:
        return None
    return replace(here, numerator=sum(part.amount for part in here.parts) / unit)


def _sassani(figure: Published) -> Iterator[Here]:
    cipher, _, bits = figure.subject.lower().partition("-")
    if figure.quantity != "speed" or figure.software != "TrueCrypt":
        return  # BestCrypt is closed
    phase = (Part(f"{figure.operation}-{figure.pattern}", "bytes", MB),)
    for kind, name in (("truecrypt", "TrueCrypt format"), ("dmcrypt", "dm-crypt")):
        stack = f"{kind}-{cipher}{bits}"
        found = _timed(figure, Here("access_patterns", phase, figure.subject, stack, note=name))
        if found:
            yield found


VERACRYPT = {"none": ("plain",), "AES": ("truecrypt-aes256", "dmcrypt-aes256")}
HASHES = {
    "HMAC-SHA-512": "sha512",
    "HMAC-SHA-256": "sha256",
    "HMAC-Whirlpool": "whirlpool",
    "HMAC-RIPEMD-160": "(?:ripemd-?160|rmd160)",
    "HMAC-Streebog": "streebog(?:-?512)?",
}


def _analiza(figure: Published) -> Iterator[Here]:
    if figure.entry == "figure-1" and figure.operation != "both":
        chain = "-".join(part.strip(")").lower() for part in figure.subject.split("("))
        part = Part(rf"{chain}-xts-256\.{figure.operation}", "bytes", MB)
        one = Here("kernel_ciphers", (part,), figure.subject)
    elif figure.subject in HASHES and figure.entry in ("figure-3", "figure-4"):
        stem = rf"pbkdf2-{HASHES[figure.subject]}\.(\d+)i"
        part = Part(stem, "derivations", 1.0, figure.iterations or 500_000, scaled=True)
        one = Here("key_derivation", (part,), figure.subject)
    elif figure.quantity in ("speed", "io_rate") and figure.block_bytes:
        unit, amount = ("operations", 1.0) if figure.quantity == "io_rate" else ("bytes", float(MB))
        part = Part(rf"{figure.operation}\.{figure.block_bytes}B", unit, amount)
        one = Here("block_sizes", (part,), figure.subject)
    elif figure.quantity == "access_time":
        one = Here("block_sizes", (Part(r"access\.read", "operations"),), figure.subject)
    elif figure.quantity == "burst_rate":
        one = Here("block_sizes", (Part(r"burst\.read", "bytes", MB),), figure.subject)
    else:
        return
    found = _timed(figure, one)
    if found is None:
        return
    if one.workload != "block_sizes":
        yield found
    for stack in VERACRYPT.get(figure.subject, ()) if one.workload == "block_sizes" else ():
        how = {"truecrypt": "TrueCrypt format", "dmcrypt": "dm-crypt"}.get(stack.split("-")[0], "")
        yield replace(found, configuration=stack, note=how)


PANDA = {
    "AES": {"": r"aes-128-cbc"},
    "DES": {"": r"des-cbc"},
    "Blowfish": {"": r"blowfish-128-cbc"},
    "RSA": {"wraps a key": r"rsa-\d+-wrap", "OAEP of all data": r"rsa-\d+-oaep"},
}
PANDA_SIZES = tuple(mb * MB for mb in (1, 2, 5, 10, 20))


def _panda(figure: Published) -> Iterator[Here]:
    if not figure.entry.startswith("table-"):
        return
    for how, cipher in PANDA.get(figure.subject, {}).items():
        stem = rf"{cipher}\.{figure.operation}\.{figure.file_type}\.(\d+)B"
        # The rows "Average Time" are sums over the sizes (data/reference/README.md).
        parts = _files(stem, (figure.size_bytes,) if figure.size_bytes else PANDA_SIZES)
        member = f"{figure.subject} ({how})" if how else member_of(figure)
        found = _timed(figure, Here("file_ciphers", parts, member))
        if found:
            yield found


VERMA = {
    "DES": "des",
    "3DES": "3des",
    "DES-EDE3": "3des",
    "AES": "aes-128",
    "AES-128": "aes-128",
    "AES-192": "aes-192",
    "AES-256": "aes-256",
    "Blowfish": "blowfish-448",
}
VERMA_SIZES = (
    *(20_527, 36_002, 45_911, 59_852, 69_545),
    *(137_325, 158_959, 166_364, 191_383, 232_398),
)


def _verma(figure: Published) -> Iterator[Here]:
    cipher = VERMA.get(figure.subject)
    if cipher is None or not figure.entry.startswith("table-") or not figure.operation:
        return
    sizes = (figure.size_bytes,) if figure.size_bytes else VERMA_SIZES
    for mode, note in _modes(figure):
        parts = _files(rf"{cipher}-{mode}\.{figure.operation}\.(\d+)B", sizes)
        found = _timed(figure, Here("cipher_modes", parts, member_of(figure), note=note))
        if found and figure.quantity == "average_time":
            found = replace(found, factor=found.factor / len(parts))
        if found:
            yield found


def _modes(figure: Published) -> list[tuple[str, str]]:
    """Our mode for the paper's, and what must be said of it.

    Table II marks the modes but one, which is taken for ECB. In Tables V and VI CFB takes 8 times
    as long as ECB with blocks of 8 bytes and 16 times with 16: it feeds back a byte at a time.
    """
    if figure.entry in ("table-v", "table-vi"):
        return [("cfb8", "8 bits fed back"), ("cfb", "whole blocks fed back")]
    return [(figure.mode.lower() or "ecb", "")]


def _files(stem: str, sizes: tuple[int | None, ...]) -> tuple[Part, ...]:
    return tuple(Part(stem, "bytes", float(size), size) for size in sizes if size)


PAPERS: dict[str, Callable[[Published], Iterator[Here]]] = {
    "sassani": _sassani,
    "analiza": _analiza,
    "panda": _panda,
    "verma": _verma,
}
