"""Kinds of configurations by name; entries of an inventory, checked and completed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.storage.base import PROCESSOR, Kind, settings
from contract.errors import AgentError
from contract.extensions import Group
from contract.plan import CONFIGURATION_KEYS, Configuration

_GROUP = Group("storage kind", "fde.storage", "agent.storage", "name", Kind)
names = _GROUP.names


def load(name: str) -> Kind:
    """Return the kind of that name; raises ExtensionError."""
    kind: Kind = _GROUP.load(name)()
    return kind


def complete(entry: Mapping[str, Any]) -> Configuration:
    """Return the configuration of an inventory's entry as `fill_in` does."""
    stated = {key: value for key, value in entry.items() if key not in CONFIGURATION_KEYS}
    return fill_in(Configuration(entry["name"], entry["kind"], entry["disk"], stated))


def fill_in(configuration: Configuration) -> Configuration:
    """Return the configuration with all settings of its kind.

    Raises AgentError with a clause, and remedy, for each fault.
    """
    kind = load(configuration.kind)
    completed, broken = settings(kind, configuration.disk, configuration.settings)
    if broken:
        raise AgentError("settings-of-kind", kind=configuration.kind, broken="; ".join(broken))
    return replace(configuration, settings=completed)


def label(configuration: Configuration) -> str:
    """Return the name of a configuration in reports, by what it is and never by its own name."""
    kind = load(configuration.kind)
    parts = [kind.label(configuration)]
    parts += [configuration.filesystem.type] if configuration.filesystem else []
    parts += ["TRIM"] if configuration.discard else []
    if configuration.disk not in ("plain", "sed"):
        parts.append(f"on {configuration.disk}")
    elif (configuration.disk, kind.encrypted_by, kind.range_state) == ("sed", PROCESSOR, "off"):
        parts.append("on the SED")
    return ", ".join(parts)
