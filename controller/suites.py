"""Suite files (YAML, workloads/suites): read, their keys checked, and a scale laid over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from contract.errors import ControllerError
from controller.names import SUITES, suite_names, unknown

KEYS = ("summary", "blocks", "workloads", "rapl_hz", "settle_s", "tail_s")
OPTIONAL_KEYS = (
    *("configurations", "contrasts", "margin", "half_width", "watermark"),
    *("attempts", "run_limit_s", "canary", "scales", "extra", "comparisons", "one_disk"),
    *("discard_first", "precondition"),
)
# What other machines need other values of; what is measured stays the same in every scale.
SCALED_KEYS = (
    *("summary", "blocks", "settle_s", "tail_s", "run_limit_s", "canary", "rapl_hz"),
    *("precondition", "workloads", "entries", "extra", "comparisons"),
)
# What a scale may change of an entry besides its parameters, and of a comparison.
ENTRY_KEYS = ("repeat", "configurations")
COMPARISON_KEYS = ("question", "first", "second", "configurations")
# Keys of a scale that go by the names of what they change, and what one of these is called.
_ONE = {"workloads": "workload", "entries": "entry", "comparisons": "comparison"}


def load_suite(name: str, folder: Path = SUITES) -> dict[str, Any]:
    """The suite's document, its keys checked; ControllerError names the nearest suite or key."""
    if name not in suite_names(folder):
        raise ControllerError(unknown("suite", name, suite_names(folder)))
    path = folder / f"{name}.yml"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ControllerError(f"{path} cannot be read as YAML ({why}): mend it.") from None
    if not isinstance(document, dict):
        raise ControllerError(f"Suite {name} is not a YAML mapping: see the other suites.")
    for key in document:
        if key not in KEYS + OPTIONAL_KEYS:
            raise ControllerError(unknown(f"key of suite {name}", str(key), KEYS + OPTIONAL_KEYS))
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
    if scale not in scales:
        if not scales:
            raise ControllerError(f"This suite has one scale: leave SCALE={scale} out.")
        raise ControllerError(unknown("scale of this suite", scale, scales))
    changes = _mapping(scales[scale], f"Scale {scale}")
    for key in changes:
        if key not in SCALED_KEYS:
            raise ControllerError(unknown(f"key of scale {scale}", str(key), SCALED_KEYS))
    entries = suite["workloads"]
    sizes = _named(changes, "workloads", entries, scale)
    places = _named(changes, "entries", entries, scale, ENTRY_KEYS)
    compared = suite.get("comparisons") or []
    questions = _named(changes, "comparisons", compared, scale, COMPARISON_KEYS)
    found = {**rest, **{key: value for key, value in changes.items() if key not in _ONE}}
    found["summary"] = f"{scale}: {found['summary']}"
    found["workloads"] = [
        {
            **entry,
            **places.get(entry["name"], {}),
            "parameters": {**(entry.get("parameters") or {}), **sizes.get(entry["name"], {})},
        }
        for entry in entries
    ]
    if compared:
        found["comparisons"] = [{**one, **questions.get(one["name"], {})} for one in compared]
    if "extra" in changes:
        further = _mapping(changes["extra"], f"The key extra of scale {scale}")
        found["extra"] = {**_mapping(suite.get("extra"), "The suite's key extra"), **further}
    return found


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
    own = suite.get("configurations") or []
    if not isinstance(own, list) or not all(isinstance(each, str) for each in own):
        raise ControllerError(f"The suite's configurations are a list of names, not {own!r}.")
    if not all(isinstance(each, str) for pair in names.items() for each in pair):
        raise ControllerError("The suite's key one_disk has a name for each name: mend it.")
    if stray := [name for name in names if name not in own]:
        raise ControllerError(unknown("configuration in one_disk", str(stray[0]), own))
    renamed = [names.get(name, name) for name in own]
    if chosen:
        wanted = any(name in names.values() and name not in own for name in chosen)
    else:
        wanted = not set(own) <= set(known) and set(renamed) <= set(known)
    return _renamed(rest, names) if wanted and names else rest


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
    given = _mapping(changes.get(key), f"The {key} of scale {scale}")
    names = [one["name"] for one in known]
    found = {}
    for name, change in given.items():
        if name not in names:
            raise ControllerError(unknown(f"{_ONE[key]} of scale {scale}", str(name), names))
        found[name] = _mapping(change, f"{_ONE[key].capitalize()} {name} of the scale")
        for each in found[name]:
            if allowed and each not in allowed:
                what = f"key of {_ONE[key]} {name} in scale {scale}"
                raise ControllerError(unknown(what, str(each), allowed))
    return found


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ControllerError(f"{what} is {value!r}: give names and values, see the other suites.")
    return value
