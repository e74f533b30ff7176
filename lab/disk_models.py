"""The declared models of disk_models.yml, and having the lab's drives behave as one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from contract.errors import LabError
from drive import behaviour, control
from drive.behaviour import Behaviour, BehaviourError

FILE = Path(__file__).with_name("disk_models.yml")
ROLES = ("plain", "sed")


@dataclass(frozen=True)
class DiskModel:
    """A behaviour by role; `name` is the model name that both disks show, "" for their own."""

    behaviours: Mapping[str, Behaviour]
    name: str = ""


def load(path: Path = FILE) -> dict[str, DiskModel]:
    """Models by their key in the file. Raises LabError for what is no model."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {name: _model(entry) for name, entry in document.items()}
    except (OSError, yaml.YAMLError, BehaviourError, AttributeError, KeyError) as error:
        raise LabError(f"{path} does not give models of disks: {error}") from error


def _model(entry: Mapping[str, Any]) -> DiskModel:
    if not entry["source"] or set(entry) - {"source", "name"} not in ({"both"}, set(ROLES)):
        raise KeyError("a model has a source, and both, or plain and sed")
    of_role = {role: behaviour.parse(entry.get("both") or entry[role]) for role in ROLES}
    return DiskModel(of_role, str(entry.get("name", "")))


def find(name: str) -> DiskModel:
    """One model. Raises LabError where there is none of that name."""
    models = load()
    if name not in models:
        raise LabError(f"there is no model of disks {name}: choose from {', '.join(models)}")
    return models[name]


def apply(name: str, drives: Mapping[str, Mapping[str, Any]]) -> None:
    """From now on the drives (`drives` of the lab's state) behave as the model; "" for none."""
    behaviours = find(name).behaviours if name else {}
    for role, drive in drives.items():
        parameters = vars(behaviours[role]) if behaviours else {}
        answer = control.ask(Path(drive["control"]), "behave", **parameters)
        if not answer["ok"]:
            raise LabError(f"the drive {role} does not take the model {name}: {answer['error']}")
