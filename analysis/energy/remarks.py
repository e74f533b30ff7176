"""What a meter said of its own readings, for the phases that they fall in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.suite.align import Ints
from analysis.suite.samples import Samples

# Known otherwise: gaps by the coverage, restarts by the stretches of the meter's clock; a marker is
# no remark on the power.
KNOWN = frozenset({"gap", "restart", "marker"})


@dataclass(frozen=True, eq=False)
class Remarks:
    """By word: where stretches of records begin and end that bear it, on the controller's clock."""

    stretches: Mapping[str, tuple[Ints, Ints]]

    @classmethod
    def of(cls, samples: Samples) -> Remarks:
        """One pass over the flags; neighbouring records that bear a word are one stretch."""
        if "flags" not in samples.columns:
            return cls({})
        parts: dict[str, list[tuple[Ints, Ints]]] = {}
        for table in samples.tables(["t_mono_ns", "window_s", "flags"]):
            said = table.filter(pl.col("flags") != "")
            for flags in said["flags"].unique():
                bearing = said.filter(pl.col("flags") == flags)
                end = bearing["t_mono_ns"].to_numpy().astype(np.int64)
                width = np.rint(bearing["window_s"].to_numpy() * 1e9).astype(np.int64)
                for word in set(flags.split()) - KNOWN:
                    parts.setdefault(word, []).append(_merged(end - width, end, width))
        return cls({word: _joined(found) for word, found in parts.items()})

    def during(self, start_ns: int, end_ns: int, own: str, all_own: Sequence[str]) -> list[str]:
        """Words on records between two instants; those on other channels than `own` left out.

        A word that ends in `-` and the meter's own name of a channel is on that channel alone.
        """
        words = []
        for word, (starts, ends) in self.stretches.items():
            base, _, channel = word.rpartition("-")
            if base and channel in all_own and channel != own:
                continue
            first = int(np.searchsorted(ends, start_ns, side="right"))
            if first < len(starts) and starts[first] < end_ns:
                words.append(base if base and channel in all_own else word)
        return sorted(words)


def _merged(start: Ints, end: Ints, width: Ints) -> tuple[Ints, Ints]:
    """Stretches of records that follow each other within half a window."""
    new = np.flatnonzero(start[1:] - end[:-1] > width[1:] // 2) + 1
    return start[np.concatenate([[0], new])], end[np.concatenate([new - 1, [len(end) - 1]])]


def _joined(parts: Iterable[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    starts, ends = zip(*parts, strict=True)
    start, end = np.concatenate(starts), np.concatenate(ends)
    order = np.argsort(start, kind="stable")
    return start[order], np.maximum.accumulate(end[order])
