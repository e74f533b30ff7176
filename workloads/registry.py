"""Every workload by name, loaded only when asked for, and its parameters checked and completed."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping

from workloads import lists
from workloads.base import Parameter, ParameterValue, Workload, WorkloadError

_TABLE = {
    "file_io": "workloads.file_io:FileIo",
    "kernel_tree": "workloads.kernel_tree:KernelTree",
    "kernel_grep": "workloads.kernel_grep:KernelGrep",
    "sql": "workloads.sql:Sql",
    "video": "workloads.video:Video",
    "idle": "workloads.idle:Idle",
    "canary": "workloads.canary:Canary",
    "access_patterns": "workloads.access_patterns:AccessPatterns",
    "block_sizes": "workloads.block_sizes:BlockSizes",
    "kernel_ciphers": "workloads.kernel_ciphers:KernelCiphers",
    "key_derivation": "workloads.key_derivation:KeyDerivation",
    "file_ciphers": "workloads.file_ciphers:FileCiphers",
    "cipher_modes": "workloads.cipher_modes:CipherModes",
}


def names() -> tuple[str, ...]:
    """The names of all workloads, in the order in which people read them."""
    return tuple(_TABLE)


def load(name: str) -> Workload:
    """A new instance of a workload; WorkloadError with the nearest name if there is none."""
    if name not in _TABLE:
        raise WorkloadError(_unknown("workload", name, _TABLE))
    module, class_name = _TABLE[name].split(":")
    workload = getattr(importlib.import_module(module), class_name)()
    assert isinstance(workload, Workload)
    return workload


def complete(name: str, given: Mapping[str, object]) -> dict[str, ParameterValue]:
    """All parameters of a workload: the given ones checked, the others by default.

    WorkloadError for an unknown workload or parameter (with the nearest name), a value of the wrong
    type, below its minimum or not among its choices, and for what the workload itself refuses.
    """
    workload = load(name)
    declared = {parameter.name: parameter for parameter in workload.parameters}
    for key in given:
        if key not in declared:
            raise WorkloadError(_unknown(f"parameter of {name}", str(key), declared))
    values = {
        key: _checked(name, parameter, given.get(key, parameter.default))
        for key, parameter in declared.items()
    }
    workload.check(values)
    return values


def _checked(workload: str, parameter: Parameter, value: object) -> ParameterValue:
    what = f"parameter {parameter.name} of {workload}"
    kind = type(parameter.default)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise WorkloadError(f"The {what} must be of type {kind.__name__}, not {value!r}.")
    assert isinstance(value, int | float | str)
    if parameter.several:
        _check_words(what, lists.words(value), parameter.choices)
    elif parameter.choices and value not in parameter.choices:
        allowed = ", ".join(parameter.choices)
        raise WorkloadError(f"The {what} must be one of {allowed}, not {value!r}.")
    if not isinstance(value, str) and not value >= parameter.minimum:
        unit = f" {parameter.unit}" if parameter.unit else ""
        raise WorkloadError(
            f"The {what} must be at least {parameter.minimum:g}{unit}, not {value!r}."
        )
    return value


def _check_words(what: str, words: list[str], choices: tuple[str, ...]) -> None:
    for word in words:
        if len(word.split()) > 1:
            raise WorkloadError(f"The {what} takes words with commas between them, not {word!r}.")
        if choices and word not in choices:
            raise WorkloadError(f"The {what} knows no {word!r}; {lists.hint(word, choices)}")
    if choices and not words:
        raise WorkloadError(f"The {what} is empty: choose from {', '.join(choices)}.")


def _unknown(what: str, name: str, known: Collection[str]) -> str:
    return f"There is no {what} called {name!r}; {lists.hint(name, known)}"
