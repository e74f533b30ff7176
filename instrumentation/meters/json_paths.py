"""Read a meter's figures from a JSON document by JSON Pointers (RFC 6901)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from instrumentation.meters.networked import DEVICE_ERROR, OFF, AnswerError, Reading, number
from instrumentation.meters.rows import DIRECT_V, OVER_RANGE, Product
from instrumentation.meters.units import POWER, stated_by, unit_of

_METER_FAILED = "power_meter"  # Shelly: power_meter_failure
_SHOWN = 80
_OUTPUTS = ("output", "relay", "ison")
_ONLINE = ("reachable", "online")
# Units of a voltage or current whose name states none, and voltages of supplies.
_UNITS = {"voltage": (1.0, 0.1, 1e-3), "current": (1.0, 1e-3)}
_LIKELY_V = 4.5, 480.0
_OF_PHASE = re.compile(r"[A-Za-z]\d?_")
_LETTERS = {"voltage": ("u", "v"), "current": ("i",)}

_NUMBER_AND_UNIT = re.compile(r"\s*([-+]?\d+(?:\.\d+)?)\s*([A-Za-zµ]+)\s*")
_UNIT_KEYS = {"unit", "units", "uom", "unit_of_measurement"}


@dataclass(frozen=True)
class Places:
    """Pointers to the figures of each channel, and the size of one unit of them.

    The values at `errors` are empty, or false, if the device reports no error that concerns a
    channel; those at `outputs` are false, or `OFF`, if its output is off. A channel without such
    pointers uses `errors` and `output`, `relay` or `ison` next to its power, and the voltage and
    the current that are named so there. The value at `login` exists if the device asks for a login.
    """

    power: Mapping[str, str]
    energy: Mapping[str, str]
    power_unit_w: float = 1.0
    energy_unit_j: float = 1.0
    stamps: tuple[str, ...] = ()
    errors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    voltages: Mapping[str, str] = field(default_factory=dict)
    currents: Mapping[str, str] = field(default_factory=dict)
    login: str = ""

    def reading(self, document: Any, channels: Mapping[str, str], *, counter: bool) -> Reading:
        """Read these channels from a document. Raises AnswerError."""
        if self.login and isinstance(login := value_at(document, self.login), str):
            way = "name a file with its login as secret_file, or check it"
            raise AnswerError("configuration", f"the device wants a login ({login[:60]}): {way}")
        errors = {error for key in channels for error in self._errors(document, key)}
        if failed := sorted(error for error in errors if _METER_FAILED in error):
            refusal = f"the device reports {', '.join(failed)[:80]}"
            raise AnswerError("device-error", refusal, DEVICE_ERROR)
        for key in channels:
            if offline := _offline(document, self.power[key]):
                raise AnswerError("no-data", f"the answer has {offline}: false")
        power_w: list[float] = []
        outputs: list[Any] = []
        for key in channels:
            value = value_at(document, self.power[key])
            if value is None:
                shown = json.dumps(document)[:_SHOWN]
                raise AnswerError("no-data", f"the answer has no power of channel {key}: {shown}")
            power_w.append(self.power_unit_w * number(value, f"power of channel {key}"))
            if power_w[-1] > 0:
                beside = parent_of(self.power[key])
                places = (
                    [self.outputs[key]]
                    if key in self.outputs
                    else [f"{beside}/{name}" for name in _OUTPUTS]
                )
                outputs += [value_at(document, place) for place in places]
        energy_j = [self._counter_j(document, key) for key in channels if counter]
        stamps = (value_at(document, place) for place in self.stamps)
        stamp = next((stamp for stamp in stamps if stamp is not None), None)
        if self.stamps and stamp is None:
            where = self.stamps[0]
            raise AnswerError("no-data", f"the answer does not name its reading ({where})")
        out_of_range = {error for error in errors if error.startswith("out_of_range")}
        is_off = any(o is False or (isinstance(o, str) and o.upper() == "OFF") for o in outputs)
        flags = OVER_RANGE * bool(out_of_range) | DEVICE_ERROR * bool(errors - out_of_range)
        name = "" if stamp is None else str(stamp)
        products = tuple(self._product(document, key) for key in channels)
        return Reading(tuple(power_w), tuple(energy_j), name, products, flags | OFF * is_off)

    def _product(self, document: Any, key: str) -> Product | None:
        """Return voltage and current of a channel, None without both.

        Units that no name states are those of a likely voltage, and of a product close to the
        power.
        """
        beside = value_at(document, parent_of(self.power[key]))
        names = list(beside) if isinstance(beside, Mapping) else []
        values = [value_at(document, self.power[key])]
        units: list[tuple[float, ...]] = [(self.power_unit_w,)]
        for pointers, quantity in ((self.voltages, "voltage"), (self.currents, "current")):
            sizes = {n: size for n in names if (size := _units_beside(n, quantity))}
            if key in pointers:
                values.append(value_at(document, pointers[key]))
                units.append((1.0,))
            elif len(sizes) == 1:
                values += [beside[name] for name in sizes]
                units += sizes.values()
            else:
                return None
        try:
            power, volts, amperes = (number(value, "a figure") for value in values)
        except AnswerError:
            return None
        power_w = abs(power * self.power_unit_w)
        likely = [u for u in units[1] if _LIKELY_V[0] <= abs(volts * u) <= _LIKELY_V[1]]
        chosen_v = (likely or units[1])[0]
        volts *= chosen_v
        # Milliamperes of mains are whole numbers.
        possible_a = units[2] if volts < DIRECT_V or amperes.is_integer() else units[2][:1]
        chosen_a = min(possible_a, key=lambda u: abs(power_w - volts * amperes * u))
        power_text, voltage_text, current_text = map(str, values)
        chosen = [self.power_unit_w, chosen_v, chosen_a]
        return Product.from_texts(power_text, voltage_text, current_text, chosen)

    def _counter_j(self, document: Any, key: str) -> float:
        """Return the counter of a channel, NaN if it has none.

        A single total next to the powers of several sockets is that of all sockets.
        """
        power_lists, energy_lists = (
            count_lists_above(document, pointers[key]) for pointers in (self.power, self.energy)
        )
        if power_lists > energy_lists:
            return math.nan
        try:
            return self.energy_unit_j * number(value_at(document, self.energy[key]), "energy")
        except AnswerError:
            return math.nan

    def _errors(self, document: Any, key: str) -> Iterator[str]:
        """Yield the names of errors that the device reports."""
        for place in self.errors.get(key, (f"{parent_of(self.power[key])}/errors",)):
            value = value_at(document, place)
            if value is True:
                yield place.rpartition("/")[2]
            elif value:
                yield from map(str, value if isinstance(value, list) else [value])


def _units_beside(name: str, quantity: str) -> tuple[float, ...]:
    """Return the possible units of a voltage or current of this name; none if it is neither."""
    if name.lower().rstrip("0123456789") in _LETTERS[quantity]:
        return (1.0,)
    unit = None if _OF_PHASE.match(name) else stated_by(name)
    if unit is None or unit.quantity != quantity:
        return ()
    return (unit.size,) if unit.size else _UNITS[quantity]


def _offline(document: Any, pointer: str) -> str:
    """Return the name by which a document calls the device of a figure offline, or nothing.

    It is in an object that contains the figure, or in an object next to one of these.
    """
    while pointer:
        pointer = parent_of(pointer)
        scope = value_at(document, pointer)
        fields = list(scope.values()) if isinstance(scope, Mapping) else []
        for inner in filter(lambda value: isinstance(value, Mapping), (scope, *fields)):
            for name in _ONLINE:
                if inner.get(name) is False:
                    return name
    return ""


def parent_of(pointer: str) -> str:
    """Return the pointer to what contains a value."""
    return pointer.rpartition("/")[0]


def count_lists_above(document: Any, pointer: str) -> int:
    """Return the number of lists with several entries that a pointer goes through."""
    tokens = pointer.split("/")
    above = (value_at(document, "/".join(tokens[:n])) for n in range(1, len(tokens)))
    return sum(isinstance(value, list) and len(value) > 1 for value in above)


def value_at(document: Any, pointer: str) -> Any:
    """Return the value at a pointer, None if there is none; the empty one is the whole document.

    Index 0 of a value that is no list is the value: Tasmota gives a list for several sockets only.
    """
    value = document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, list) or key != "0":
            return None
    return value


def require_agreement(document: Any, pointer: str, unit_w: float) -> None:
    """Raise AnswerError if a document states another unit of the power at a pointer than `unit_w`.

    It is stated in the object of the figure, or in the next one above that states one.
    """
    value, parent = value_at(document, pointer), pointer
    if pointer[-2:] in ("/S", "/Q") and value_at(document, f"{parent_of(pointer)}/P") is not None:
        raise AnswerError("configuration", f"{pointer} is no active power: that is P next to it")
    while parent:
        is_next, parent = parent == pointer, parent_of(parent)
        units = [*_units_in(value_at(document, parent), value, pointer.rpartition("/")[2])]
        for text in units if is_next else filter(unit_of, units):
            power_unit_w(text, unit_w)
        if any(map(unit_of, units)):
            return


def power_unit_w(text: object, declared_w: float | None = None) -> float:
    """Return a unit of power in W. Raises AnswerError for another one, also than declared."""
    unit = unit_of(text)
    if unit is None or unit.quantity != POWER or not unit.size:
        raise AnswerError("configuration", f"the figure is in {text!r}, which is no power")
    if declared_w not in (None, unit.size):
        reason = f"the figure is in {text!r}, not in {declared_w:g} W"
        raise AnswerError("configuration", f"{reason}: set power_unit_w")
    return unit.size


def _units_in(fields: Any, value: Any, key: str) -> Iterator[str]:
    """Yield texts of an object, or of its `attributes`, that state the unit of `value`.

    A unit of power or energy under any other key is that of the value, unless the key contains the
    name of another figure.
    """
    inner = fields.get("attributes") if isinstance(fields, Mapping) else None
    for scope in (scope for scope in (fields, inner) if isinstance(scope, Mapping)):
        texts = {name: text for name, text in scope.items() if isinstance(text, str) and text}
        for name, text in texts.items():
            unit = unit_of(text)
            is_sized = unit is not None and unit.size is not None and unit.quantity not in _UNITS
            is_others = any(other in name for other in scope if other not in (key, name))
            if name.lower() in {*_UNIT_KEYS, f"{key}_unit"} or (is_sized and not is_others):
                yield text
            elif match := _NUMBER_AND_UNIT.fullmatch(text):
                yield from [match[2]] if match[1] == str(value) else []
