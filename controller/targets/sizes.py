"""Read sizes in bytes as people write them in an inventory."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {"B": 1}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("kMGTP", 1)}
_UNITS |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTP", 1)}
_SIZE = re.compile(rf"(\d{{1,19}})|(\d{{1,19}}(?:\.\d{{1,9}})?) ?({'|'.join(_UNITS)})", re.ASCII)
_MOST_BYTES = 2**63 - 1


def parse_size(value: object) -> int | None:
    """Return the bytes of a size such as `16 GiB`, `1.5 TB` or 17179869184; None for others.

    A `16G` is refused: some programs take it for powers of 1000, others for powers of 1024.
    """
    match = _SIZE.fullmatch(str(value))
    if match is None:
        return None
    size = Decimal(match[1] or match[2]) * _UNITS[match[3] or "B"]
    return int(size) if size == int(size) and size <= _MOST_BYTES else None
