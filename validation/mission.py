"""`python -m validation.mission`: how much of what the papers print has a counterpart here.

Counted from the papers' figures (data/reference), the mapping (`analysis.published.likes`), the
table of settings (data/reference/settings.csv) and the suites as they stand. A figure's counterpart
is one of

- `beside`: the report puts a measured figure of a suite's phases beside it;
- `external`: the same, on a configuration of a program that the user must bring (BestCrypt);
- `setting`: a parameter of a suite or an assumption of the inventory;
- `sum`: a sum over our joules, whose code makes the paper's own sum from the paper's numbers;
- `result`, `recorded`: shown in the report, or recorded of the machine; no rule compares them.

It counts for agreement where its value is not spoilt and a rule compares the two: it is `beside`
with a ratio or in a group with others, or a `setting` that is equal or lies in the printed range,
or a `sum`.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import yaml

from analysis.published.beside import group_of, spoilt
from analysis.published.here import Here, matching
from analysis.published.likes import likes
from analysis.published.reference import (
    FOLDER,
    Published,
    citations,
    configurations,
    published,
    rows,
)
from controller.suites import load_suite
from lab.state import REPOSITORY
from validation import bench
from validation.bench import Figure, at_least
from workloads import (
    block_sizes,
    cipher_modes,
    file_ciphers,
    kernel_ciphers,
    key_derivation,
    registry,
)
from workloads.crypt.catalogue import CIPHERS

SUITES = (
    "paper",
    "access-patterns",
    "closed-products",
    "block-sizes",
    "file-ciphers",
    "cipher-modes",
)
TARGETS = {  # with a counterpart, and counting
    "fujimoto": (46, 44),
    "sassani": (125, 120),
    "analiza": (600, 480),
    "panda": (216, 210),
    "verma": (240, 238),
}
WITHIN = {"GB": 1024.0}  # sizes are compared in MB
PATH = bench.FOLDER / "mission.json"
SUBJECT = "the papers' figures, the mapping and the suites; nothing ran"
SPOILT = "its value is doubtful as printed or copied"
COUNTS = FOLDER / "counterparts.csv"


@dataclass(frozen=True)
class Setting:
    """A row of settings.csv; an empty subject or quantity means all of its entry."""

    paper: str
    entry: str
    subject: str
    quantity: str
    kind: str
    suite: str
    ours: str
    factor: str
    why: str

    def of(self, figure: Published) -> bool:
        named = (self.subject, figure.subject), (self.quantity, figure.quantity)
        return (self.paper, self.entry) == (figure.paper, figure.entry) and all(
            wanted in ("", said) for wanted, said in named
        )


@dataclass(frozen=True)
class Counterpart:
    """What one figure has here; `kind` is `none` with the reason, and `counts` for agreement."""

    paper: str
    entry: str
    place: str
    subject: str
    quantity: str
    printed: str
    kind: str
    where: str
    counts: bool
    spoilt: bool
    why: str


@cache
def settings() -> tuple[Setting, ...]:
    return tuple(Setting(**row) for row in rows("settings"))


@cache
def entries() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """By suite its entries by name, with `workload`, `parameters` (all of them), `repeat` and the
    `configurations` that it runs on."""
    return {
        name: {
            given["name"]: {
                "workload": (workload := given.get("workload", given["name"])),
                "parameters": registry.complete(workload, given.get("parameters") or {}),
                "repeat": given.get("repeat", 1),
                "configurations": given.get("configurations", suite["configurations"]),
            }
            for given in suite["workloads"]
        }
        for name, suite in ((name, load_suite(name)) for name in SUITES)
    }


def phases(workload: str, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The phases of a workload with these parameters, as its own code names them."""
    ways = ("encrypt", "decrypt")
    known: dict[str, Callable[[], Sequence[str]]] = {
        "block_sizes": lambda: [
            *(f"{way}.{n}B" for n in block_sizes.steps(parameters) for way in ("write", "read")),
            *("access.read", "burst.read"),
        ],
        "kernel_ciphers": lambda: [
            f"{row.name}.{way}" for row in kernel_ciphers.planned(parameters) for way in ways
        ],
        "key_derivation": lambda: [one.phase for one in key_derivation.planned(parameters)],
        "file_ciphers": lambda: [job.phase(way) for job, way in file_ciphers.measured(parameters)],
        "cipher_modes": lambda: [job.phase for job in cipher_modes.planned(parameters)],
        "access_patterns": lambda: [
            f"{way}-{order}" for order in ("sequential", "random") for way in ("write", "read")
        ],
        "file_io": lambda: ["write-small", "read-small", "write-large", "read-large"],
        "kernel_tree": lambda: ["copy", "untar", "tar", "delete", "all"],
        "kernel_grep": lambda: [f"grep-{n + 1}" for n in range(int(parameters["copies"]))],
    }
    return tuple(known[workload]()) if workload in known else ()


@cache
def place_of(here: Here) -> str:
    """`<suite>: <entry>` that has all phases and the configuration; empty where none has."""
    for single in here.singles:
        for one in filter(None, (single, single.versus)):
            where = _single(one)
            if not where:
                return ""
    return _single(here.singles[0])


def _single(here: Here) -> str:
    wanted = configurations().get(here.configuration)
    for suite, known in entries().items():
        for name, entry in known.items():
            if entry["workload"] != here.workload:
                continue
            if wanted and wanted.configuration not in entry["configurations"]:
                continue
            names = _phases_of(suite, name)
            if all(matching(part.phase, names) for part in here.parts):
                return f"{suite}: {name}"
    return ""


@cache
def _phases_of(suite: str, entry: str) -> tuple[str, ...]:
    one = entries()[suite][entry]
    return phases(one["workload"], one["parameters"])


def counterparts() -> Iterator[Counterpart]:
    """Of every figure of every paper."""
    for citation in citations():
        figures = published(citation.paper)
        groups = Counter(group_of(p) for p in figures if likes(p))
        for figure in figures:
            kind, where, compared, why = _found(figure, groups)
            yield Counterpart(
                figure.paper,
                figure.entry,
                figure.place,
                figure.subject,
                figure.quantity,
                figure.printed,
                kind,
                where,
                compared and not spoilt(figure),
                spoilt(figure),
                why,
            )


def _found(figure: Published, groups: Counter[tuple[object, ...]]) -> tuple[str, str, bool, str]:
    """Kind, where, whether a rule compares the two, and why there is none."""
    setting = next((one for one in settings() if one.of(figure)), None)
    if setting is not None and setting.kind == "none":
        return "none", "", False, setting.why
    if found := likes(figure):
        heres = [(here, place) for here in found if (place := place_of(here))]
        if not heres:
            return "none", "", False, "no suite has the phases that it is mapped to"
        here, place = heres[0]
        names = {single.configuration for single in here.singles}
        names |= {one.versus.configuration for one in here.singles if one.versus}
        kinds = {configurations()[name].kind for name in names if name}
        stated = here.says and here.stated(figure.usable) is not None
        alone = groups[group_of(figure)] < 2 or here.says == "apart"
        kind = "external" if "external" in kinds else "beside"
        return kind, place, bool(stated) or not alone, ""
    if setting is None:
        return "none", "", False, "nothing is mapped to it"
    where = f"{setting.suite}: {setting.ours}" if setting.suite else setting.ours
    if setting.kind == "setting":
        return "setting", where, _as_printed(setting, figure), ""
    return setting.kind, where, setting.kind == "sum", ""


def _as_printed(setting: Setting, figure: Published) -> bool:
    """Whether what is set here is the figure, or lies in the range of which it is an end."""
    low, high = (
        value * WITHIN.get(figure.unit, 1.0) * side
        for value, side in zip(_range(figure), (1 - 1e-9, 1 + 1e-9), strict=True)
    )
    return any(low <= value * float(setting.factor) <= high for value in _values(setting))


def _range(figure: Published) -> tuple[float, float]:
    """The least and the largest value of a figure's range; of one that is none, itself twice."""
    stem, _, end = figure.quantity.rpartition("_")
    if end not in ("min", "max"):
        return figure.value, figure.value
    ends = {
        p.quantity: p.value
        for p in published(figure.paper)
        if (p.entry, p.subject) == (figure.entry, figure.subject)
    }
    return ends[f"{stem}_min"], ends[f"{stem}_max"]


def _values(setting: Setting) -> list[float]:
    """What a suite or the inventory sets."""
    found: list[float] = []
    for path in setting.ours.split():
        head, _, name = path.partition(":")
        if name:
            found.append(_fixed(head, name))
        elif path == "blocks":
            found.append(load_suite(setting.suite)["blocks"])
        elif path.startswith("assumptions."):
            found.append(_assumptions()[path.removeprefix("assumptions.")])
        else:
            entry, _, parameter = path.partition(".")
            found += _parameter(setting.suite, entry, parameter)
    return found


def _parameter(suite: str, entry: str, parameter: str) -> list[float]:
    one = entries()[suite][entry]
    if parameter == "repetitions":
        return [one["repeat"] * load_suite(suite)["blocks"]]
    return [float(word) for word in str(one["parameters"][parameter]).split(",")]


def _fixed(what: str, name: str) -> float:
    """What the workloads' own code fixes: lengths in bits, and VeraCrypt's iterations."""
    if what in ("pim", "system", "iterations"):
        system = what == "system"
        example = "sha256" if system else "sha512"
        one, two = (key_derivation.iterations(example, pim, system=system) for pim in (1, 2))
        default = key_derivation.iterations(example, 0, system=system)
        each, offset = two - one, 2 * one - two
        pims = -(-(default - offset) // each)
        known = {"each": each, "offset": offset, "default": pims}
        return default if what == "iterations" else known[name]
    if name == "rsa":
        return float(file_ciphers.OAEP.split("-")[1])
    cipher = CIPHERS[name]
    bits = {"key_bits": 8 * cipher.key_bytes, "block_bits": 8 * cipher.block_bytes}
    bits["effective_bits"] = (8 - 1) * cipher.key_bytes
    return bits[what]


@cache
def _assumptions() -> Mapping[str, float]:
    path = REPOSITORY / "ansible" / "group_vars" / "all.yml"
    found: Mapping[str, float] = yaml.safe_load(path.read_text())["fde_assumptions"]
    return found


def figures(found: Sequence[Counterpart]) -> Iterator[tuple[str, list[Figure]]]:
    """By paper how many have a counterpart and count, of what kind, and the reasons of the rest."""
    for citation in citations():
        of = [one for one in found if one.paper == citation.paper]
        there = [one for one in of if one.kind != "none"]
        measured, counting = TARGETS[citation.paper]
        kinds = Counter(one.kind for one in there)
        reasons = Counter(one.why for one in of if one.kind == "none")
        yield (
            citation.short,
            [
                at_least(f"with a counterpart, of {len(of)}", len(there), "", measured),
                at_least("counting for agreement", sum(one.counts for one in there), "", counting),
                *(Figure(f"  {kind}", number, "") for kind, number in kinds.most_common()),
                *(Figure(f"  not counting: {why}", n, "") for why, n in _not_counting(there)),
                *(Figure(f"  none: {why}", number, "") for why, number in reasons.most_common()),
            ],
        )


def _not_counting(there: Sequence[Counterpart]) -> list[tuple[str, int]]:
    """Of figures with a counterpart why they do not count, and how many."""
    no_rule = "no rule compares the two"
    whys = Counter(
        SPOILT if one.spoilt else {"setting": "the setting here is another"}.get(one.kind, no_rule)
        for one in there
        if not one.counts
    )
    return whys.most_common()


def summary(found: Sequence[Counterpart]) -> list[dict[str, str]]:
    """The rows of data/reference/counterparts.csv, from which docs/papers.md has its counts."""
    return [
        {
            "paper": citation.paper,
            "figures": str(len(of)),
            "counterparts": str(sum(one.kind != "none" for one in of)),
            "external": str(sum(one.kind == "external" for one in of)),
            "counting": str(sum(one.counts for one in of)),
            "without": "; ".join(
                f"{why} ({number})"
                for why, number in Counter(o.why for o in of if o.kind == "none").most_common()
            ),
            "not_counting": "; ".join(
                f"{why} ({n})" for why, n in _not_counting([o for o in of if o.kind != "none"])
            ),
        }
        for citation in citations()
        for of in [[one for one in found if one.paper == citation.paper]]
    ]


def main() -> int:
    """0 where all targets are met; the figures one by one stand behind those of the papers."""
    load_1_min = os.getloadavg()[0]
    found = list(counterparts())
    made = [row for part, of in figures(found) for row in bench.rows_of(part, of)]
    print(bench.table(made))
    bench.write(PATH, made, SUBJECT, load_1_min)
    one_by_one = PATH.with_name("mission-figures.json")
    one_by_one.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    with COUNTS.open("w", encoding="utf-8", newline="") as file:
        counts = summary(found)
        writer = csv.DictWriter(file, list(counts[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(counts)
    print(f"{PATH}, and each figure in {one_by_one.name}")
    return int(bench.missed(made))


if __name__ == "__main__":
    sys.exit(main())
