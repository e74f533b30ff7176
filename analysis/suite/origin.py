"""Where a figure comes from; carried by every figure to the last page."""

from __future__ import annotations

from collections.abc import Iterable

MEASURED = "measured"
MODELLED = "modelled"  # a machine that really ran, its joules from a model
SYNTHETIC = "synthetic"  # no machine at all: figures made for a purpose
ORDER = (MEASURED, MODELLED, SYNTHETIC)


def joint(origins: Iterable[str]) -> str:
    """The origin of what rests on several figures: the worst of theirs; an unknown one is modelled.

    Without any figure it is *measured*: nothing was modelled.
    """
    ranks = (ORDER.index(name) if name in ORDER else 1 for name in origins)
    return ORDER[max(ranks, default=0)]
