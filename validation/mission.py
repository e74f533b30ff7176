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
    Citation,
    Published,
    citations,
    configurations,
    published,
    rows,
)
from controller.planning.suites import load_suite
from lab.state import REPOSITORY
from validation import bench
from validation.bench import Figure, at_least
from validation.lost_points import write_rows
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
    """By suite its entries by name, with `workload`, `parameters` (all of them), the `phases` that
    these give, `repeat` and the `configurations` that it runs on."""
    return {
        name: {
            given["name"]: {
                "workload": (workload := given.get("workload", given["name"])),
                "parameters": (
                    parameters := registry.complete(workload, given.get("parameters") or {})
                ),
                "phases": phases(workload, parameters),
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
    places = [_single(one) for one in _sides(here)]
    return places[0] if all(places) else ""


def _sides(here: Here) -> list[Here]:
    """Its single configurations, each with the one that it is held against."""
    return [one for single in here.singles for one in (single, single.versus) if one]


def _single(here: Here) -> str:
    wanted = configurations().get(here.configuration)
    for suite, known in entries().items():
        for name, entry in known.items():
            if entry["workload"] != here.workload:
                continue
            if wanted and wanted.configuration not in entry["configurations"]:
                continue
            if all(matching(part.phase, entry["phases"]) for part in here.parts):
                return f"{suite}: {name}"
    return ""


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
        names = {one.configuration for one in _sides(here)}
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


@dataclass(frozen=True)
class Counted:
    """Of one paper: how many figures it has, how many of them count, and how many there are of
    each kind of counterpart, of each reason not to count, and of each to have none."""

    citation: Citation
    figures: int
    counting: int
    kinds: Counter[str]
    not_counting: Counter[str]
    without: Counter[str]


def counted(found: Sequence[Counterpart]) -> Iterator[Counted]:
    """By paper."""
    other = {"setting": "the setting here is another"}
    for citation in citations():
        of = [one for one in found if one.paper == citation.paper]
        there = [one for one in of if one.kind != "none"]
        yield Counted(
            citation,
            len(of),
            sum(one.counts for one in there),
            Counter(one.kind for one in there),
            Counter(
                SPOILT if one.spoilt else other.get(one.kind, "no rule compares the two")
                for one in there
                if not one.counts
            ),
            Counter(one.why for one in of if one.kind == "none"),
        )


def figures(found: Sequence[Counterpart]) -> Iterator[tuple[str, list[Figure]]]:
    """By paper how many have a counterpart and count, of what kind, and the reasons of the rest."""
    for one in counted(found):
        measured, counting = TARGETS[one.citation.paper]
        said = (("", one.kinds), ("not counting: ", one.not_counting), ("none: ", one.without))
        more = [Figure(f"  {head}{why}", n, "") for head, of in said for why, n in of.most_common()]
        heads = [
            at_least(f"with a counterpart, of {one.figures}", one.kinds.total(), "", measured),
            at_least("counting for agreement", one.counting, "", counting),
        ]
        yield one.citation.short, [*heads, *more]


def summary(found: Sequence[Counterpart]) -> list[dict[str, str]]:
    """The rows of data/reference/counterparts.csv, from which docs/papers.md has its counts."""
    return [
        {
            "paper": one.citation.paper,
            "figures": str(one.figures),
            "counterparts": str(one.kinds.total()),
            "external": str(one.kinds["external"]),
            "counting": str(one.counting),
            "without": "; ".join(f"{why} ({n})" for why, n in one.without.most_common()),
            "not_counting": "; ".join(f"{why} ({n})" for why, n in one.not_counting.most_common()),
        }
        for one in counted(found)
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
    write_rows("counterparts", summary(found))
    print(f"{PATH}, and each figure in {one_by_one.name}")
    return int(bench.missed(made))


if __name__ == "__main__":
    sys.exit(main())
