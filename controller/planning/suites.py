"""Suite files (YAML, workloads/suites): keys checked, scales laid over them, their entries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from contract.errors import ControllerError
from contract.parameters import ParameterValue
from controller.planning.known_names import SUITES, require_known, suite_names
from controller.planning.schedule import DRIFT_CHECK, Turn
from workloads import registry
from workloads.base import WorkloadError

VARIANT_KEYS = ("name", "workload", "parameters", "repeat", "configurations", "overall")
MOST_REPEATS = 1000
# What reports call the sum over workloads.
RESERVED = ("all",)
_NAME = re.compile(r"[a-z0-9]+([_-][a-z0-9]+)*")


@dataclass(frozen=True)
class Entry:
    """A workload under a name of its own, with all its parameters.

    Without `overall` it is there for a question, and no part of the figure over all workloads.
    """

    turn: Turn
    workload: str
    parameters: Mapping[str, ParameterValue]
    overall: bool = True

    @property
    def name(self) -> str:
        return self.turn.name

    def document(self) -> dict[str, Any]:
        """Its line in the plan."""
        workload = {} if self.workload == self.name else {"workload": self.workload}
        aside = {} if self.overall else {"overall": False}
        return {"name": self.name, **workload, "parameters": dict(self.parameters), **aside}


def entries(
    suite: Mapping[str, Any], names: Sequence[str], database: str, *, chosen: bool
) -> list[Entry]:
    """The suite's entries on the plan's configurations (`names`).

    `chosen`: these stand in for the suite's own, so what an entry names besides is passed over,
    and an entry that has none of them left is no part of the plan. Raises ControllerError.
    """
    declared: list[Entry] = []
    for item in suite["workloads"]:
        entry = _entry(item, names, database, chosen=chosen)
        if any(entry.name == other.name for other in declared):
            raise ControllerError(
                f"A suite names the same workload twice: keep one {entry.name}, or give one a "
                f"name of its own and workload: {entry.workload}."
            )
        declared.append(entry)
    reachable = [entry for entry in declared if entry.turn.configurations]
    if not reachable:
        raise ControllerError("A suite needs at least one workload: name one in workloads.")
    return reachable


def configurations_of(
    what: str, wanted: Any, names: Sequence[str], *, chosen: bool
) -> tuple[str, ...]:
    """Those of the plan's configurations that `wanted` names, in the plan's order; None: all."""
    if wanted is None:
        return tuple(names)
    if not isinstance(wanted, list) or not wanted:
        raise ControllerError(f"The configurations of {what} are {wanted!r}: give a list of names.")
    if not chosen:
        require_known(f"configuration of {what}", wanted, names)
    return tuple(name for name in names if name in wanted)


def complete(workload: str, parameters: Mapping[str, Any]) -> dict[str, ParameterValue]:
    """All parameters of a workload. Raises ControllerError."""
    try:
        return dict(registry.complete(workload, parameters))
    except WorkloadError as error:
        raise ControllerError(str(error)) from error


def _entry(item: Any, names: Sequence[str], database: str, *, chosen: bool) -> Entry:
    if not isinstance(item, Mapping) or "name" not in item:
        raise ControllerError(f"An entry of workloads is {item!r}: give it a name at least.")
    name, workload = item["name"], item.get("workload", item["name"])
    what = f"the workload {name}"
    require_known(f"key of {what}", item, VARIANT_KEYS)
    _check_name(name, workload)
    return Entry(
        turn=Turn(
            name=name,
            configurations=configurations_of(
                what, item.get("configurations"), names, chosen=chosen
            ),
            repeat=_repeat(what, item.get("repeat", 1)),
        ),
        workload=workload,
        parameters=complete(workload, _parameters(what, workload, item, database)),
        overall=_overall(what, item.get("overall", True)),
    )


def _check_name(name: Any, workload: Any) -> None:
    if DRIFT_CHECK in (name, workload):
        raise ControllerError(
            "The drift check is no workload of a suite's list: it runs between blocks by itself "
            "(the suite's key drift_check)."
        )
    require_known("workload", [workload], registry.names())
    if name == workload:
        return
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in RESERVED:
        raise ControllerError(
            f"{name!r} cannot name an entry of workloads: use small letters and digits, words "
            "joined by - or _, as in sql-large."
        )
    if name in registry.names():
        raise ControllerError(
            f"The entry {name} runs {workload}, but {name} is a workload itself: choose another "
            "name for it."
        )


def _repeat(what: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MOST_REPEATS:
        raise ControllerError(
            f"The repeat of {what} is {value!r}: give a whole number from 1 to {MOST_REPEATS}."
        )
    return value


def _overall(what: str, value: Any) -> bool:
    if type(value) is not bool:
        raise ControllerError(f"overall of {what} is {value!r}: give true or false.")
    return value


def _parameters(what: str, workload: str, item: Mapping[str, Any], database: str) -> dict[str, Any]:
    """The suite's parameters; which database server there is, the target says, not the suite."""
    parameters = item.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise ControllerError(
            f"The parameters of {what} are {parameters!r}: give names and values."
        )
    return {"server": database, **parameters} if workload == "sql" else dict(parameters)


KEYS = ("summary", "blocks", "workloads", "rapl_hz", "settle_s", "tail_s")
OPTIONAL_KEYS = (
    *("configurations", "contrasts", "margin", "half_width", "looks", "watermark"),
    *("attempts", "run_limit_s", "drift_check", "scales", "extra", "comparisons", "one_disk"),
    *("discard_first", "precondition", "disks", "factors"),
)
# What other machines need other values of; what is measured stays the same in every scale.
SCALED_KEYS = (
    *("summary", "blocks", "settle_s", "tail_s", "run_limit_s", "drift_check", "rapl_hz"),
    *("precondition", "workloads", "entries", "extra", "comparisons"),
)
# What a scale may change of an entry besides its parameters, and of a comparison.
ENTRY_KEYS = ("repeat", "configurations")
COMPARISON_KEYS = ("question", "first", "second", "configurations")
# Keys of a scale that go by the names of what they change, and what one of these is called.
_ONE = {"workloads": "workload", "entries": "entry", "comparisons": "comparison"}


def load_suite(name: str, folder: Path = SUITES) -> dict[str, Any]:
    """The suite's document, its keys checked; ControllerError names the nearest suite or key."""
    require_known("suite", [name], suite_names(folder))
    path = folder / f"{name}.yml"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ControllerError(f"{path} cannot be read as YAML ({why}): correct it.") from None
    if not isinstance(document, dict):
        raise ControllerError(f"Suite {name} is not a YAML mapping: see the other suites.")
    require_known(f"key of suite {name}", document, KEYS + OPTIONAL_KEYS)
    for key in KEYS:
        if key not in document:
            raise ControllerError(f"Suite {name} lacks the key {key!r}: add it.")
    return document


def scaled(suite: Mapping[str, Any], scale: str | None) -> dict[str, Any]:
    """The suite at one of its `scales`; its summary then begins with the scale's name.

    A scale says only what differs: of a workload, single parameters. ControllerError where the
    suite has no such scale, or the scale names what is not scaled.
    """
    rest = {key: value for key, value in suite.items() if key != "scales"}
    if scale is None:
        return rest
    scales = _mapping(suite.get("scales"), "The suite's key scales")
    if not scales:
        raise ControllerError(f"This suite has one scale: leave --scale {scale} out.")
    require_known("scale of this suite", [scale], scales)
    changes = _mapping(scales[scale], f"Scale {scale}")
    require_known(f"key of scale {scale}", changes, SCALED_KEYS)
    entries = suite["workloads"]
    sizes = _named(changes, "workloads", entries, scale)
    places = _named(changes, "entries", entries, scale, ENTRY_KEYS)
    compared = suite.get("comparisons") or []
    questions = _named(changes, "comparisons", compared, scale, COMPARISON_KEYS)
    changed = {**rest, **{key: value for key, value in changes.items() if key not in _ONE}}
    changed["summary"] = f"{scale}: {changed['summary']}"
    changed["workloads"] = [
        {
            **entry,
            **places.get(entry["name"], {}),
            "parameters": {**(entry.get("parameters") or {}), **sizes.get(entry["name"], {})},
        }
        for entry in entries
    ]
    if compared:
        changed["comparisons"] = [{**one, **questions.get(one["name"], {})} for one in compared]
    if "extra" in changes:
        further = _mapping(changes["extra"], f"The key extra of scale {scale}")
        changed["extra"] = {**_mapping(suite.get("extra"), "The suite's key extra"), **further}
    return changed


def on_one_disk(
    suite: Mapping[str, Any], known: Sequence[str], chosen: Sequence[str]
) -> dict[str, Any]:
    """The suite with the names of `one_disk` in place of its own, where these are what is there.

    `one_disk` names, for configurations of the suite, the same on the self-encrypting disk. They
    are taken where `chosen` has one of them, or where nothing is chosen and the inventory (`known`)
    has all of them and lacks one of the suite's own. Raises ControllerError.
    """
    names = _mapping(suite.get("one_disk"), "The suite's key one_disk")
    rest = {key: value for key, value in suite.items() if key != "one_disk"}
    configurations = suite.get("configurations") or []
    if not isinstance(configurations, list) or not all(
        isinstance(each, str) for each in configurations
    ):
        raise ControllerError(
            f"The suite's configurations are a list of names, not {configurations!r}."
        )
    if not all(isinstance(each, str) for pair in names.items() for each in pair):
        raise ControllerError("The suite's key one_disk has a name for each name: correct it.")
    require_known("configuration in one_disk", names, configurations)
    renamed = [names.get(name, name) for name in configurations]
    if chosen:
        wanted = any(name in names.values() and name not in configurations for name in chosen)
    else:
        wanted = not set(configurations) <= set(known) and set(renamed) <= set(known)
    return _renamed(rest, names) if wanted and names else rest


def on_disks(suite: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """The suite with each of its configurations on each of its `disks`, as far as there are such.

    `known` has the disk of each configuration of the inventory by its name, which on one of several
    disks is `NAME-on-DISK`. Raises ControllerError for a disk or a configuration that has none.
    """
    disks = suite.get("disks")
    if disks is None:
        return dict(suite)
    rest = dict(suite)
    if not isinstance(disks, list) or not all(isinstance(d, str) for d in disks):
        raise ControllerError(f"The suite's disks are a list of names, not {disks!r}.")
    require_known("disk with configurations", disks, sorted(set(known.values())))
    configurations = suite.get("configurations") or []
    by_name = {
        name: [on for d in disks if (on := on_disk(name, d)) in known] for name in configurations
    }
    for name, variants in by_name.items():
        if not variants:
            raise ControllerError(
                f"The inventory has no configuration {on_disk(name, disks[0])}, nor on another of "
                "the suite's disks: name it in fde_configurations with disk: a list of them."
            )
    # By disk, so that what belongs together stands together.
    names = [on_disk(name, disk) for disk in disks for name in configurations]
    rest["configurations"] = [name for name in names if name in known]
    if declared := suite.get("contrasts"):
        pairs = [[on_disk(end, disk) for end in pair] for disk in disks for pair in declared]
        rest["contrasts"] = [pair for pair in pairs if set(pair) <= set(rest["configurations"])]
    for key in ("workloads", "comparisons"):
        if key in suite:
            rest[key] = [_spread(entry, by_name) for entry in suite[key]]
    if "extra" in suite:
        rest["extra"] = _spread(suite["extra"], by_name)
    return rest


def on_disk(name: str, disk: str) -> str:
    """What a configuration is called on one of several disks."""
    return f"{name}-on-{disk}"


def _spread(entry: Any, by_name: Mapping[str, Sequence[str]]) -> Any:
    """An entry of a suite whose configurations are those on all disks."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("configurations"), list):
        return entry
    spread = (by_name.get(str(name), [name]) for name in entry["configurations"])
    return {**entry, "configurations": [name for names in spread for name in names]}


def _renamed(value: Any, names: Mapping[str, str], below: str = "") -> Any:
    """A suite with other names of configurations wherever it names some."""
    if isinstance(value, Mapping):
        return {key: _renamed(each, names, str(key)) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, names, below) for each in value]
    if below in ("configurations", "contrasts") and isinstance(value, str):
        return names.get(value, value)
    return value


def _named(
    changes: Mapping[str, Any],
    key: str,
    known: Sequence[Mapping[str, Any]],
    scale: str,
    allowed: Sequence[str] = (),
) -> dict[str, Mapping[str, Any]]:
    """What a scale changes of the suite's entries (or comparisons), by their names."""
    by_name = _mapping(changes.get(key), f"The {key} of scale {scale}")
    names = [one["name"] for one in known]
    changed = {}
    for name, change in by_name.items():
        require_known(f"{_ONE[key]} of scale {scale}", [name], names)
        changed[name] = _mapping(change, f"{_ONE[key].capitalize()} {name} of the scale")
        if allowed:
            require_known(f"key of {_ONE[key]} {name} in scale {scale}", changed[name], allowed)
    return changed


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ControllerError(f"{what} is {value!r}: give names and values, see the other suites.")
    return value
