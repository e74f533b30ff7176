"""Suite files (YAML, workloads/suites): read, their keys checked, and a scale laid over them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agent.controller.errors import ControllerError
from agent.controller.names import SUITES, suite_names, unknown

KEYS = ("summary", "blocks", "workloads", "rapl_hz", "settle_s", "tail_s")
OPTIONAL_KEYS = (
    *("configurations", "contrasts", "margin", "half_width", "watermark"),
    *("attempts", "run_limit_s", "canary", "scales"),
)
# What other machines need other values of; what is measured stays the same in every scale.
SCALED_KEYS = ("summary", "blocks", "settle_s", "tail_s", "run_limit_s", "canary", "workloads")


def load_suite(name: str, folder: Path = SUITES) -> dict[str, Any]:
    """The suite's document, its keys checked; ControllerError names the nearest suite or key."""
    if name not in suite_names(folder):
        raise ControllerError(unknown("suite", name, suite_names(folder)))
    document = yaml.safe_load((folder / f"{name}.yml").read_text(encoding="utf-8"))
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
    parameters = _mapping(changes.get("workloads"), f"The workloads of scale {scale}")
    names = [entry["name"] for entry in suite["workloads"]]
    for name in parameters:
        if name not in names:
            raise ControllerError(unknown(f"workload of scale {scale}", str(name), names))
    found = {**rest, **changes}
    found["summary"] = f"{scale}: {found['summary']}"
    found["workloads"] = [
        {**entry, "parameters": {**(entry.get("parameters") or {}), **_of(parameters, entry)}}
        for entry in suite["workloads"]
    ]
    return found


def _of(parameters: Mapping[str, Any], entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(parameters.get(entry["name"]), f"Workload {entry['name']} of the scale")


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ControllerError(f"{what} is {value!r}: give names and values, see the other suites.")
    return value
