"""`python -m validation.lost_points`: what figures without their decimal point must have read.

The copy of the Polish paper lost the decimal points of some 160 figures (data/reference/README.md).
ATTO prints speed and operations a second in one row, and speed is operations times the size of a
request. A reading is the digits with a point between any two of them. Where exactly one reading of
a row fits, it is written into the column `fitting`; where none or several do, the column is empty.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from analysis.published.reference import FOLDER, Published, published

PAPER = "analiza"
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
        if p.paper == PAPER and p.entry in ENTRIES:
            key = p.entry, p.subject, p.operation, p.block_bytes
            rows.setdefault(key, {})[p.quantity] = p
    for row in rows.values():
        if "speed" in row and "io_rate" in row:
            yield row["speed"], row["io_rate"]


def main() -> int:
    """Write the column and say how many figures have it."""
    figures = published(PAPER)
    found = fitting(figures)
    path = FOLDER / f"{PAPER}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        columns = list(reader.fieldnames or ())
        rows = [
            row | {"fitting": found.get(p.key, "")} for row, p in zip(reader, figures, strict=True)
        ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    lost = sum(LOST in p.note for p in figures)
    print(f"{path.name}: {lost} figures lost their point, {len(found)} have one reading that fits.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
