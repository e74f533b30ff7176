"""Relations within and between the records of a Watts Up?, which has no checksum.

Readings are integers as on the wire: W, WH, V, Hz and VA in tenths, A in thousandths, PF in %, Cost
in thousandths. The tolerances are ours: wide enough for the published records (V·A is off VA by up
to 7 % at 12 W), and a relation that often fails is dropped (`Trust`), because firmware differs:
some give the largest power of each interval as Wmax, some that since the last reset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

Readings = Mapping[str, int | None]

_MAXIMA = ("Wmax", "Vmax", "Amax")
_MINIMA = ("Wmin", "Vmin", "Amin")
# No model takes more than 15 A, at up to 250 V; in counts, with a margin.
_MOST_POWER = 40_000
_MOST = {"Wmax": _MOST_POWER, "VA": _MOST_POWER, "Vmax": 3_000, "Amax": 16_000}
_MOST_NOW = {"W": _MOST_POWER, "VA": _MOST_POWER, "V": 3_000, "A": 16_000}
_SECONDS_PER_HOUR = 3600
# A relation that failed this often, and in more than a share of all records, is no property of the
# meter: more than half for a law of physics, a fifth for a choice of the firmware.
_FAILURES = 5
_FAILURE_SHARE = 0.2
_FAILURE_SHARE_PHYSICAL = 0.5
_PHYSICAL = frozenset(
    ("W = VA x PF", "W = V x A x PF", "PF", "Hz", "WH after WH", "the meter's range")
)


def failing_within(latest: Readings) -> dict[str, bool]:
    """Return for each relation within one record that can be checked whether it fails."""
    failing: dict[str, bool] = {}
    w, v, a = latest.get("W"), latest.get("V"), latest.get("A")
    pf, va, hz = latest.get("PF"), latest.get("VA"), latest.get("Hz")
    if w is not None and pf is not None:
        if va is not None:
            failing["W = VA x PF"] = abs(w - va * pf / 100) > 0.006 * va + 3
        if v is not None and a is not None:
            apparent = v * a / 1000  # in 0.1 VA
            failing["W = V x A x PF"] = abs(w - apparent * pf / 100) > 0.06 * apparent + 15
    if pf is not None:
        failing["PF"] = pf > 100
    if hz is not None:
        failing["Hz"] = hz != 0 and not 400 <= hz <= 700
    ranges = [
        value <= most for name, most in _MOST.items() if (value := latest.get(name)) is not None
    ]
    if ranges:
        failing["the meter's range"] = not all(ranges)
    if v:
        extremes = [
            value for value in (latest.get("Vmin"), latest.get("Vmax")) if value is not None
        ]
        failing["V near its extremes"] = any(not 0.7 * v <= e <= 1.3 * v for e in extremes)
    for quantity, value in (("W", w), ("V", v), ("A", a)):
        least, most = latest.get(f"{quantity}min"), latest.get(f"{quantity}max")
        if value is not None and least is not None:
            failing[f"{quantity}min"] = value < least
        if value is not None and most is not None:
            failing[f"{quantity}max"] = value > most
    return failing


def over_range(latest: Readings) -> bool:
    """Return whether a present reading is above the limits of all models."""
    return any((latest.get(name) or 0) > most for name, most in _MOST_NOW.items())


def failing_between(
    before: Readings, latest: Readings, seconds: float, *, gap: bool
) -> dict[str, bool]:
    """Return for each relation between two records `seconds` apart whether it fails.

    `gap` is true if records between them are missing.
    """
    failing: dict[str, bool] = {}

    def compare(name: str, fails: Callable[[int, int], bool]) -> None:
        old, new = before.get(name), latest.get(name)
        if old is not None and new is not None:
            failing[f"{name} after {name}"] = fails(old, new)

    power = latest.get("W")
    # Least and most that WH can rise by, in 0.1 Wh; rounding takes or adds one.
    least, most = 0.0, _MOST_POWER * seconds / _SECONDS_PER_HOUR + 2
    if power is not None and not gap:
        expected = power * seconds / _SECONDS_PER_HOUR
        least, most = max(0, 0.5 * expected - 2), 1.5 * expected + 2
    compare("WH", lambda old, new: not least <= new - old <= most)
    compare("Cost", lambda old, new: not 0 <= new - old <= most + 1)
    for name in _MAXIMA:
        compare(name, lambda old, new: new < old)
    for name in _MINIMA:
        compare(name, lambda old, new: new > old)
    compare("Hz", lambda old, new: abs(new - old) > 10)
    compare("WH/Mo", lambda old, new: _mean_jumps(before, old, new))
    old_wh, new_wh = before.get("WH/Mo"), latest.get("WH/Mo")
    if old_wh is not None and new_wh is not None:  # at the tariff, cut to whole thousandths
        wh = old_wh, new_wh
        compare(
            "Cost/Mo", lambda old, new: abs(new * wh[0] - old * wh[1]) > 2 * (sum(wh) + old + new)
        )
    return failing


def _mean_jumps(before: Readings, old: int, new: int) -> bool:
    """Return whether WH/Mo, the mean power since a reset in W x 720, changed too fast."""
    energy = before.get("WH")
    if not energy or not old:
        return False
    watts = old / 720
    seconds_so_far = energy / 10 * _SECONDS_PER_HOUR / watts
    if seconds_so_far < 30:
        return False
    share = 4 / seconds_so_far  # of the mean, by the newest seconds
    most = old * (1.05 + share * _MOST_POWER / 10 / watts)
    return not old * (0.95 - share) - 1 <= new <= most + 1


class Trust:
    """Relations that hold for this meter, learnt from its records since the port was opened."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._reported: set[str] = set()

    def broken(self, failing: Mapping[str, bool]) -> list[str]:
        """Count which relations fail; return those of them that are trusted."""
        self._failed.update(name for name, fails in failing.items() if fails)
        self._held.update(name for name, fails in failing.items() if not fails)
        return [name for name, fails in failing.items() if fails and self.trusts(name)]

    def trusts(self, name: str) -> bool:
        """Return whether a relation holds for this meter."""
        failed = self._failed[name]
        share = _FAILURE_SHARE_PHYSICAL if name in _PHYSICAL else _FAILURE_SHARE
        return failed < _FAILURES or failed < share * (failed + self._held[name])

    def newly_dropped(self) -> list[str]:
        """Return the relations that are no longer used and were not returned before."""
        dropped = [name for name in self._failed if not self.trusts(name)]
        fresh = [name for name in dropped if name not in self._reported]
        self._reported.update(fresh)
        return fresh
