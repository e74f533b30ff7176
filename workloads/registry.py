"""Load workloads by name on demand; check and complete their parameters."""

from __future__ import annotations

from collections.abc import Mapping

from contract.extensions import ExtensionError, Group
from contract.names import unknown_name
from contract.parameters import Parameter, ParameterError, ParameterValue, checked
from contract.schema import nearest
from workloads import lists
from workloads.base import Workload, WorkloadError

_GROUP = Group("workload", "fde.workloads", "workloads", "name", Workload)
names = _GROUP.names


def load(name: str) -> Workload:
    """Return a new instance of a workload.

    WorkloadError for an unknown one, with the nearest name.
    """
    try:
        workload: Workload = _GROUP.load(name)()
    except ExtensionError as error:
        raise WorkloadError(error) from error
    return workload


def complete(name: str, settings: Mapping[str, object]) -> dict[str, ParameterValue]:
    """Return all parameters of a workload: the given ones checked, the others by default.

    WorkloadError for an unknown workload or parameter (with the nearest name), a value of the wrong
    type, below its minimum or not among its choices, and for values that the workload refuses.
    """
    workload = load(name)
    declared = {parameter.name: parameter for parameter in workload.parameters}
    for key in settings:
        if key not in declared:
            raise WorkloadError(unknown_name(f"parameter of {name}", str(key), declared))
    values = {
        key: _checked(name, parameter, settings.get(key, parameter.default))
        for key, parameter in declared.items()
    }
    workload.check(values)
    return values


def _checked(workload: str, parameter: Parameter, value: object) -> ParameterValue:
    subject = f"parameter {parameter.name} of {workload}"
    try:
        accepted = checked(subject, parameter, value)
    except ParameterError as error:
        raise WorkloadError(error) from error
    if not parameter.several:
        return accepted
    words, choices = lists.words(accepted), [str(choice) for choice in parameter.choices]
    for word in words:
        if len(word.split()) > 1:
            raise WorkloadError("not-words", what=subject, word=word)
        if choices and word not in choices:
            raise WorkloadError(
                "unknown-word", what=subject, word=word, nearest=nearest(word, choices)
            )
    if choices and not words:
        raise WorkloadError("words-empty", what=subject, known=", ".join(choices))
    return accepted
