"""Parts of a machine that the quantities of sources cover, and which may be added up.

They are declared in coverage.toml, and in the file that a source of an installed package names as
`coverage`; a quantity without an entry is shown, but never taken for the machine's figure.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from instrumentation.sources import registry

FILE = Path(__file__).with_name("coverage.toml")
_NUMBERED_CHIP = re.compile(r"hwmon\d+-")  # leads the name of a second chip of one driver


@dataclass(frozen=True)
class Category:
    """A part of a machine that a quantity can cover.

    `rank` 1 covers most; None is never a headline. `holds` are the categories within it. A mean
    power below `least_w` or above `most_w` is in a wrong unit.
    """

    name: str
    least_w: float
    most_w: float
    rank: int | None = None
    holds: tuple[str, ...] = ()
    never_zero: bool = False
    leaves_out: str = ""


@dataclass(frozen=True)
class Quantity:
    """An entry of the table: names that match `name` cover `covers`.

    With `alone` this holds only if no other name of the machine matches.
    """

    name: re.Pattern[str]
    covers: Category
    alone: bool = False


@dataclass(frozen=True)
class Total:
    """Quantities of chips of one driver that may be added up; each of `parts` must have one.

    `parts` match whole names, chip and label. With an empty `chip` they may be of any source.
    """

    chip: re.Pattern[str]
    parts: tuple[re.Pattern[str], ...]
    name: str
    covers: Category


@dataclass(frozen=True)
class Table:
    """The declared table."""

    categories: Mapping[str, Category]
    quantities: tuple[Quantity, ...]
    totals: tuple[Total, ...]

    def category(self, name: str, names: Iterable[str] = (), source: str = "") -> Category | None:
        """Return what `name` of a source covers on a machine with `names`; None if unknown.

        Of a meter's channels only `system` is the machine: others may be one of several supplies,
        or a disk. A source of an installed package that declares nothing is accepted, for its user
        wants its figures.
        """
        if source.startswith("meter "):
            return self.categories["machine"] if name.rpartition("/")[2] == "system" else None
        undeclared = self.categories["undeclared"] if registry.is_undeclared(source) else None
        return self._declared(name, names) or undeclared

    def _declared(self, name: str, names: Iterable[str]) -> Category | None:
        plain = _plain(name)
        for total in self.totals:
            chip, _, label = plain.rpartition("/")
            if label == total.name and total.chip.fullmatch(chip):
                return total.covers
        for quantity in self.quantities:
            if quantity.name.fullmatch(plain):
                like = {n for n in names if quantity.name.fullmatch(_plain(n))} | {name}
                return None if quantity.alone and len(like) > 1 else quantity.covers
        return None

    def sums(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return the totals that these quantities make: by name, the quantities to add up."""
        all_names = list(names)
        summands: dict[str, list[str]] = {}
        for total in self.totals:
            by_part = [[n for n in all_names if p.fullmatch(_plain(n))] for p in total.parts]
            members = [name for part in by_part for name in part]
            if all(by_part) and len(members) > 1:
                chip = _plain(members[0]).rpartition("/")[0]
                name = f"{chip}/{total.name}" if total.chip.pattern else total.name
                summands[name] = members
        return summands


def _plain(name: str) -> str:
    return _NUMBERED_CHIP.sub("", name, count=1) if _NUMBERED_CHIP.match(name) else name


@cache
def table() -> Table:
    """Read the tables of this tree and of installed packages as one."""
    documents = [
        tomllib.loads(file.read_text(encoding="utf-8"))
        for file in (FILE, *registry.coverage_files())
    ]
    categories = {
        name: Category(name, **{**entry, "holds": tuple(entry.get("holds", ()))})
        for name, entry in documents[0]["category"].items()
    }

    def pattern(text: str) -> re.Pattern[str]:
        return re.compile(text, re.IGNORECASE)

    quantities = tuple(
        Quantity(pattern(e["name"]), categories[e["covers"]], e.get("alone", False))
        for document in documents
        for e in document["quantity"]
    )
    totals = tuple(
        Total(
            pattern(e.get("chip", "")),
            tuple(
                pattern(f"(?:{e['chip']})/(?:{part})" if "chip" in e else part)
                for part in e["parts"]
            ),
            e["name"],
            categories[e["covers"]],
        )
        for document in documents
        for e in document.get("total", ())
    )
    return Table(categories, quantities, totals)
