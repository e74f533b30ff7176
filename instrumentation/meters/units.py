"""Units and quantities that the words around a figure state: names, units, queries and lines.

A meter's settings declare what its figure is; a word that states something else contradicts them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

POWER, ENERGY = "power", "energy"


class Unit(NamedTuple):
    """What a word states: a quantity, and the size of one unit (W, J, V, A), if it is a unit."""

    quantity: str
    size: float | None = None


_PREFIXES = {"": 1.0, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "k": 1e3}
_BASES = {
    **{"W": (POWER, 1.0), "J": (ENERGY, 1.0), "Ws": (ENERGY, 1.0), "Wh": (ENERGY, 3600.0)},
    **{"V": ("voltage", 1.0), "A": ("current", 1.0)},
    **dict.fromkeys(("VA", "var"), ("apparent or reactive power", 1.0)),
}
UNITS: Mapping[str, Unit] = {
    prefix + base: Unit(quantity, size * factor)
    for base, (quantity, size) in _BASES.items()
    for prefix, factor in _PREFIXES.items()
}
_LONG = {"watt": "W", "joule": "J", "watthour": "Wh", "wattsecond": "Ws"}
# Words in names, in lower case. Phases are called a and b, so that a is no unit there.
WORDS: Mapping[str, Unit] = {
    **{text.lower(): unit for text, unit in UNITS.items() if text not in ("A", "V")},
    **{
        f"{long}{word}{plural}": UNITS[short + unit]
        for long, short in (("", ""), ("milli", "m"), ("kilo", "k"))
        for word, unit in _LONG.items()
        for plural in ("", "s")
    },
    **dict.fromkeys(("power", "pow"), Unit(POWER)),
    **dict.fromkeys(("energy", "aenergy", "ener"), Unit(ENERGY)),
    **dict.fromkeys(("voltage", "volt", "urms"), Unit("voltage")),
    **dict.fromkeys(("current", "curr", "irms", "amps"), Unit("current")),
    **dict.fromkeys(("frequency", "freq"), Unit("frequency")),
    **dict.fromkeys(("factor", "pf", "pfac", "percent", "pct"), Unit("share")),
}
# Wherever they are in a name, these make of a power something else than the active one of a moment.
_NO_MOMENT = {
    **dict.fromkeys(
        ("apparent", "aprt", "app", "reactive", "reac"), Unit("apparent or reactive power")
    ),
    **dict.fromkeys(("max", "min", "maximum", "minimum", "peak"), Unit("extreme")),
    **dict.fromkeys(("limit", "nominal", "rated", "capacity"), Unit("limit")),
    **dict.fromkeys(("today", "yesterday", "hourly", "daily", "monthly"), Unit("long time")),
    **{"demand": Unit("long time"), "ups.load": Unit("share")},
    "ups.power": Unit("apparent or reactive power"),  # NUT's names
}
_BETWEEN_WORDS = re.compile(r"[^A-Za-z]+|(?<=[a-z]{2})(?=[A-Z])")


def unit_of(text: object) -> Unit | None:
    """Return the unit named by a text such as `mW` or `Watts`; None for other texts."""
    if not isinstance(text, str):
        return None
    return UNITS.get(text) or (WORDS.get(text.lower()) if len(text) > 2 else None)


def stated_by(name: str) -> Unit | None:
    """Return what a name states by the last of its words that state anything; None if none does.

    So `energy_meter_power` is a power and `power_current` none. The factor is that of the last unit
    of the quantity. `instantaneous_demand` is a power.
    """
    text = re.sub(r"(?i)(watt)_(hour|second)", r"\1\2", name)
    words = [word.lower() for word in _BETWEEN_WORDS.split(text) if word]
    if "instantaneous" not in words:
        for word in (name.lower(), *words):
            if word in _NO_MOMENT:
                return _NO_MOMENT[word]
    units = [WORDS[word] for word in words if word in WORDS]
    sizes = [u.size for u in units if u.size and u.quantity == units[-1].quantity]
    return Unit(units[-1].quantity, sizes[-1] if sizes else None) if units else None
