"""Readings by pyRAPL, to compare with those of our reader of the same counters.

pyRAPL does not correct wraps, uses the wall clock and fails in many ways (a missing zone, an
unreadable file, an unknown layout). No exception reaches the caller: the result has a sentence
instead.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from instrumentation.clock import monotonic_ns
from instrumentation.sources.counter import ReadFailure, Reading

# Flags of its figure for a phase, compared with our reading of the same counters around it.
WRAPPED = "pyrapl-wrapped"
DIFFERS = "pyrapl-differs"
UNCHECKED = "pyrapl-unchecked"


@contextmanager
def _quiet_logging() -> Iterator[None]:
    """Suppress warnings of optional output formats (pandas, MongoDB), which are not used here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


class PyraplSource:
    """One pyRAPL measurement at a time. `error` is None until the first failure."""

    name: ClassVar[str] = "pyrapl"

    def __init__(self) -> None:
        self.error: str | None = None
        self.names: Sequence[str] = ()
        self._measurement: Any = None

    @classmethod
    def open(cls) -> PyraplSource:
        """Set pyRAPL up for all sockets and devices; never raises, see `error`."""
        source = cls()
        source._try(source._set_up)
        source.begin()
        source.names = tuple(source.read())
        return source

    def begin(self) -> None:
        """Start a measurement; never raises."""
        if self._measurement is not None:
            self._try(self._measurement.begin)

    def read(self) -> dict[str, Reading | ReadFailure]:
        """Return each counter's µJ since `begin` (or `open`) by zone name; never raises."""
        t_before_ns = monotonic_ns()
        zones = self._try(self._finish) or {}
        t_after_ns = monotonic_ns()
        failure = ReadFailure(t_before_ns, self.error or "pyRAPL gave no figure for this zone")
        readings = {n: Reading(t_before_ns, t_after_ns, round(uj)) for n, uj in zones.items()}
        return {**dict.fromkeys(self.names, failure), **readings}

    def close(self) -> None:
        """Drop the measurement."""
        self._measurement = None

    def _set_up(self) -> None:
        with warnings.catch_warnings(), _quiet_logging():
            warnings.simplefilter("ignore", SyntaxWarning)  # pyRAPL's source has an invalid escape
            warnings.simplefilter("ignore", DeprecationWarning)
            import pyRAPL
        pyRAPL.setup()
        self._measurement = pyRAPL.Measurement("run")

    def _finish(self) -> dict[str, float]:
        """End the measurement; return its µJ by zone, named as in the powercap source."""
        if self._measurement is None:
            raise RuntimeError("pyRAPL was not set up")
        self._measurement.end()
        # An index of its lists is a socket, -1 no such counter.
        packages, drams = (
            {n: uj for n, uj in enumerate(figures_uj or ()) if uj >= 0}
            for figures_uj in (self._measurement.result.pkg, self._measurement.result.dram)
        )
        zones = {f"package-{n}": uj for n, uj in packages.items()}
        several = len(packages) > 1
        zones |= {f"package-{n}/dram" if several else "dram": uj for n, uj in drams.items()}
        if not zones:
            raise RuntimeError("no zone gave a figure: a counter wrapped, or none was found")
        return zones

    def _try(self, step: Callable[[], Any]) -> Any:
        """Run a step unless one has failed; the first failure becomes `error`."""
        if self.error is not None:
            return None
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - pyRAPL raises anything
            reason = str(error) or "no reason given"
            self.error = f"pyRAPL failed ({type(error).__name__}): {reason}"
            return None
