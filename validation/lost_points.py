"""`python -m validation.lost_points`: what misprinted figures must have read.

The copy of the Polish paper lost the decimal points of some 160 figures (data/reference/README.md).
ATTO prints speed and operations a second in one row, and speed is operations times the size of a
request. A reading is the digits with a point between any two of them. Where exactly one reading of
a row fits, it is written into the column `fitting`; where none or several do, the column is empty.

Panda prints its times to encrypt twice, the second time with their sum and a throughput. Where the
second printing differs, the first one fits; a sum and a throughput follow from the times.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from analysis.published.reference import FOLDER, Published, published, rows

ANALIZA, PANDA = "analiza", "panda"
PRINTED_AGAIN = {"table-iii": "table-i", "table-vi": "table-iv", "table-ix": "table-vii"}
ENTRIES = ("figure-6", "figure-8", "figure-10")
LOST = "copy: the decimal point is lost"
KIB, MIB = 1024, 1024**2
SCALE = {"MB/s": MIB, "KB/s": KIB, "IO/s": 1, "kIO/s": 1000}
FASTEST_MB_S = 600.0  # SATA at 6 Gb/s; the flash drive's USB 3.1 gave less
SLACK = 0.03  # by which undamaged rows are off


def step(figure: Published) -> float:
    """One of the last printed digit."""
    _, dot, decimals = figure.printed.partition(".")
    return 10.0 ** -len(decimals) if dot else 1.0


def fit(speed: Published, rate: Published, size_bytes: int) -> bool:
    """Whether a speed is its operations a second times their size, to within rounding and SLACK."""
    unit, per_s = SCALE[speed.unit], SCALE[rate.unit]
    low, high = ((rate.value + sign * step(rate)) * per_s * size_bytes for sign in (-1, 1))
    own = [(speed.value + sign * step(speed)) * unit for sign in (-1, 1)]
    return own[0] * (1 - SLACK) <= high and own[1] * (1 + SLACK) >= low


def readings(figure: Published) -> list[Published]:
    """The figure itself, or with a point at each place where one may have been lost."""
    if LOST not in figure.note:
        return [figure]
    digits = figure.printed.replace(".", "")
    texts = [f"{digits[:place]}.{digits[place:]}" for place in range(1, len(digits))]
    return [replace(figure, value=float(text), printed=text) for text in texts]


def fitting(figures: Sequence[Published]) -> dict[tuple[object, ...], str]:
    """By the key of a damaged figure the reading that alone fits."""
    found: dict[tuple[object, ...], str] = {}
    for speed, rate in _pairs(figures):
        size_bytes = speed.block_bytes or 0
        right = [
            pair
            for pair in product(readings(speed), readings(rate))
            if fit(*pair, size_bytes) and pair[0].value * SCALE[speed.unit] <= FASTEST_MB_S * MIB
        ]
        if len(right) == 1:
            found |= {p.key: p.printed for p in right[0] if LOST in p.note}
    return found


def _pairs(figures: Sequence[Published]) -> Iterator[tuple[Published, Published]]:
    rows: dict[tuple[object, ...], dict[str, Published]] = {}
    for p in figures:
        if p.paper == ANALIZA and p.entry in ENTRIES:
            key = p.entry, p.subject, p.operation, p.block_bytes
            rows.setdefault(key, {})[p.quantity] = p
    for row in rows.values():
        if "speed" in row and "io_rate" in row:
            yield row["speed"], row["io_rate"]


def printed_twice(figures: Sequence[Published]) -> dict[tuple[object, ...], str]:
    """By the key of a figure of Panda's second printing what the first one has, or gives.

    A throughput is taken only where it follows from a sum that is wrong itself: the others of the
    last table fit no reading.
    """
    found: dict[tuple[object, ...], str] = {}
    for again, first in PRINTED_AGAIN.items():
        for subject in dict.fromkeys(p.subject for p in figures if p.entry == again):
            times, copies, of = _printings(figures, subject, first, again)
            found |= {
                copy.key: time.printed
                for time, copy in zip(times, copies, strict=True)
                if copy.value != time.value
            }
            right, sum_ms = math.fsum(p.value for p in times), of["average_time"]
            rounding = (step(sum_ms) + sum(step(p) for p in times)) / 2
            if abs(right - sum_ms.value) <= rounding:
                continue
            found[sum_ms.key] = f"{right:.1f}"
            rate, kib = of["throughput"], sum(p.size_bytes or 0 for p in times) / KIB
            made, given = kib / right, kib / sum_ms.value
            if abs(given - rate.value) <= step(rate) < abs(made - rate.value):
                found[rate.key] = f"{made:.1f}"
    return found


def _printings(
    figures: Sequence[Published], subject: str, first: str, again: str
) -> tuple[list[Published], list[Published], dict[str, Published]]:
    """The times of both printings by size, and what is computed from them by its quantity."""
    by = {
        entry: [p for p in figures if (p.entry, p.subject) == (entry, subject)]
        for entry in (first, again)
    }
    times, copies = (
        sorted((p for p in of if p.quantity == "time"), key=lambda p: p.size_bytes or 0)
        for of in by.values()
    )
    return times, copies, {p.quantity: p for p in by[again] if p.quantity != "time"}


def main() -> int:
    """Write the column and say how many figures have it."""
    for paper, find in ((ANALIZA, fitting), (PANDA, printed_twice)):
        figures = published(paper)
        found, of_file = find(figures), zip(rows(paper), figures, strict=True)
        write_rows(paper, [row | {"fitting": found.get(p.key, "")} for row, p in of_file])
        print(f"{paper}.csv: {len(found)} figures have one reading that fits.")
    return 0


def write_rows(name: str, table: Sequence[dict[str, Any]]) -> None:
    """A file of data/reference; its columns are those of the first row."""
    with (FOLDER / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


if __name__ == "__main__":
    sys.exit(main())
