"""Declared settings of a workload or of a kind of storage: name, default, unit, limits."""

from __future__ import annotations

from dataclasses import dataclass

from contract.errors import AgentError

ParameterValue = int | float | str | bool
# The largest allowed number by unit, for declarations without `maximum`: larger ones would fill a
# disk or take a target's time for ever.
MOST_BY_UNIT = {"": 10_000, "s": 86_400, "ms": 3_600_000, "B": 2**30, "KiB": 2**20, "MiB": 2**24}
MOST = 10**9


class ParameterError(AgentError):
    """A value does not match its declaration; one sentence."""


@dataclass(frozen=True)
class Parameter:
    """One declared setting; `unit` is empty for a plain count or a word.

    The default gives the type. `minimum` and `maximum` bound numbers, the latter by default that of
    the unit; `choices`, if any, are the allowed values.
    With `several`, the value is a list of words or numbers with commas between them, read with
    `workloads.lists`; of `choices` it has at least one. Where it is `required`, the default is an
    example.
    """

    name: str
    default: ParameterValue
    unit: str
    help: str
    minimum: float = 0
    choices: tuple[ParameterValue, ...] = ()
    several: bool = False
    required: bool = False
    maximum: float | None = None

    @property
    def most(self) -> float:
        """Return the largest allowed number."""
        return MOST_BY_UNIT.get(self.unit, MOST) if self.maximum is None else self.maximum


def checked(subject: str, parameter: Parameter, value: object) -> ParameterValue:
    """Return the value in its declared type; `subject` names it in ParameterError."""
    kind = type(parameter.default)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ParameterError("parameter-type", what=subject, type=kind.__name__, value=value)
    assert isinstance(value, int | float | str)
    if parameter.choices and not parameter.several and value not in parameter.choices:
        allowed = ", ".join(map(str, parameter.choices))
        raise ParameterError("parameter-choice", what=subject, allowed=allowed, value=value)
    unit = f" {parameter.unit}" if parameter.unit else ""
    if not isinstance(value, str) and not value >= parameter.minimum:
        raise ParameterError(
            "parameter-minimum", what=subject, minimum=parameter.minimum, unit=unit, value=value
        )
    if not isinstance(value, str) and not value <= parameter.most:
        raise ParameterError(
            "parameter-maximum", what=subject, maximum=parameter.most, unit=unit, value=value
        )
    return value


def described(parameter: Parameter) -> str:
    """Describe a parameter for people on one line: name, default, allowed values, meaning."""
    default = str(parameter.default)
    text = (default if parameter.unit else default.lower()) or "empty"
    unit = f" {parameter.unit}" if parameter.unit else ""
    several = "several of " if parameter.several else ""
    allowed = f" ({several}{', '.join(map(str, parameter.choices))})" if parameter.choices else ""
    value = f", required, such as {text}" if parameter.required else f" = {text}"
    return f"{parameter.name}{value}{unit}{allowed}: {parameter.help}"
