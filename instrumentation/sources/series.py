"""Many readings of the same counters at the least cost: kept as they come, parsed afterwards."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Protocol

from instrumentation.sources.counter import ReadFailure, Reading

COUNTER_BYTES = 32
_SEPARATOR = ord(",")
_FAILED = -1


class Files(Protocol):
    """Held counter files: `away` tells which have failed and why; `reopen` tries those again."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def descriptors(self) -> Sequence[int]: ...
    @property
    def reopened_ns(self) -> Sequence[Sequence[int]]: ...
    @property
    def away(self) -> dict[int, str]: ...
    def reopen(self) -> None: ...


@dataclass
class _Column:
    """One counter's samples: two stamps each, and the texts read, separated by commas. Arrays,
    because a million small objects would cost memory and the collector's time during a run."""

    stamps_ns: array[int] = field(default_factory=lambda: array("q"))
    text: bytearray = field(default_factory=bytearray)


def parse(t_before_ns: int, t_after_ns: int, text: bytes, epoch: int) -> Reading | ReadFailure:
    """The reading that a counter file's text stands for."""
    try:
        return Reading(t_before_ns, t_after_ns, int(text), epoch)
    except ValueError:
        return ReadFailure(t_before_ns, not_a_number(text))


def not_a_number(text: bytes) -> str:
    """What is wrong with a counter file of this content."""
    return f"the file holds {text.decode(errors='replace')!r} in place of a number"


class Series:
    """Samples of all counters of a source. `take` is the hot path, the rest is for afterwards."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._names = tuple(files.names)
        self._columns = [_Column() for _ in self._names]
        self._errors: dict[tuple[int, int], str] = {}
        self._slots = [
            (index, descriptor, column.stamps_ns, column.text)
            for index, (descriptor, column) in enumerate(
                zip(files.descriptors, self._columns, strict=True)
            )
        ]

    def take(self) -> None:
        """Read every counter once."""
        if self._files.away:
            self._files.reopen()
        # The stamp after one read is the stamp before the next: a call fewer a counter.
        t_before_ns = monotonic_ns()
        for index, descriptor, stamps_ns, text in self._slots:
            stamps_ns.append(t_before_ns)
            try:
                data = os.pread(descriptor, COUNTER_BYTES, 0)
                if not data:
                    raise OSError(not_a_number(data))
            except OSError as error:
                self._errors[index, len(stamps_ns)] = reason(error)
                self._files.away[index] = reason(error)
                t_before_ns = monotonic_ns()
                stamps_ns.append(_FAILED)
            else:
                t_before_ns = monotonic_ns()
                stamps_ns.append(t_before_ns)
                text.extend(data)
            text.append(_SEPARATOR)

    def readings(self) -> dict[str, list[Reading | ReadFailure]]:
        """Every sample by counter, in order of time."""
        return {name: list(self._parsed(n)) for n, name in enumerate(self._names)}

    def _parsed(self, index: int) -> Iterator[Reading | ReadFailure]:
        column, reopened_ns = self._columns[index], self._files.reopened_ns[index]
        stamps_ns = column.stamps_ns
        for n, text in enumerate(bytes(column.text).split(b",")[:-1]):
            before_ns, after_ns = stamps_ns[2 * n], stamps_ns[2 * n + 1]
            if after_ns == _FAILED:
                yield ReadFailure(before_ns, self._errors[index, 2 * n + 1])
            else:
                epoch = bisect_right(reopened_ns, after_ns)
                yield parse(before_ns, after_ns, text, epoch)


def reason(error: OSError) -> str:
    """The system's reason without numbers and paths."""
    return error.strerror or str(error)
