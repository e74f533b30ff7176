"""Load the disk models of disk_models.yml, and start the lab's drives and meter."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from contract.errors import LabError
from contract.files import write_json
from contract.places import module_command
from drive import behaviour, control
from drive.behaviour import Behaviour, BehaviourError
from lab.launcher import Launcher
from lab.network import Network
from lab.state import GIB, DriveState, Layout, MeterState, cache_dir

FILE = Path(__file__).with_name("disk_models.yml")
DRIVE_BYTES = 2 * GIB
BLOCK_BYTES = 4096


@dataclass(frozen=True)
class DriveKind:
    """One of the lab's drives; `medium` is a section of power_model.yml, "" for the default."""

    role: str
    model: str
    serial: str
    opal: bool
    medium: str = ""

    @property
    def nqn(self) -> str:
        return f"nqn.2026-01.org.fde-testbed:{self.role}"


def by_id(model: str, serial: str) -> str:
    """Return the by-id link that udev makes for such a disk in the guest."""
    return f"/dev/disk/by-id/nvme-{model}_{serial}"


DRIVES = (
    DriveKind("plain", "fde-lab-plain", "FDELABPLAIN01", opal=False),
    DriveKind("sed", "fde-lab-sed", "FDELABSED0001", opal=True),
)


@dataclass(frozen=True)
class DiskModel:
    """A model's drives, and the behaviour of each by its role."""

    drives: tuple[DriveKind, ...]
    behaviours: Mapping[str, Behaviour]


def load(path: Path = FILE) -> dict[str, DiskModel]:
    """Return all models by their key in the file. Raises LabError for an invalid one."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {name: _model(entry) for name, entry in document.items()}
    except (OSError, yaml.YAMLError, BehaviourError, AttributeError, KeyError) as error:
        raise LabError("invalid-models", path=path, error=error) from error


def _model(entry: Mapping[str, Any]) -> DiskModel:
    if not entry["source"] or set(entry) - {"source", "name"} not in ({"every"}, {"disks"}):
        raise KeyError("a model has a source, and either every or disks")
    kinds = {kind.role: kind for kind in DRIVES}
    models = entry.get("disks") or dict.fromkeys(kinds, entry.get("every"))
    drives, behaviours = [], {}
    for role, entry_settings in models.items():
        settings = dict(entry_settings or {})
        kind = kinds.get(role) or DriveKind(
            role,
            f"fde-lab-{role}",
            f"FDELAB{role.upper()}01",
            opal=bool(settings.pop("opal", False)),
        )
        model, medium = str(entry.get("name", kind.model)), str(settings.pop("medium", ""))
        drives.append(replace(kind, model=model, medium=medium))
        behaviours[role] = behaviour.parse(settings)
    return DiskModel(tuple(drives), behaviours)


def find(name: str) -> DiskModel:
    """Return the model of this name. Raises LabError for an unknown one."""
    models = load()
    if name not in models:
        raise LabError("no-model", model=name, known=", ".join(models))
    return models[name]


def apply(name: str, drives: Mapping[str, DriveState]) -> None:
    """Make the drives (`drives` of the lab's state) behave as the model; "" for none."""
    behaviours = find(name).behaviours if name else {}
    for role, drive in drives.items():
        parameters = vars(behaviours[role]) if behaviours else {}
        answer = control.ask(Path(drive["control"]), "behave", **parameters)
        if not answer["ok"]:
            raise LabError("model-refused", role=role, model=name, error=answer["error"])


def write_secrets(layout: Layout) -> Path:
    """Create this lab's secrets; return the file of the PSID (on a real drive's label)."""
    psid = secrets.token_hex(16).upper()
    values = {
        "luks_passphrase": secrets.token_urlsafe(24),
        "opal_admin_pin": secrets.token_urlsafe(24),
        "sed_psid": psid,
    }
    write_json(layout.secrets, values, mode=0o600)
    label = layout.directory / "sed.psid"
    label.unlink(missing_ok=True)
    label.touch(mode=0o600)
    label.write_text(psid, encoding="utf-8")
    return label


def start_drive(launcher: Launcher, kind: DriveKind, psid: Path, network: Network) -> DriveState:
    """Start one drive with an empty medium; return its entry in the lab's state.

    In a separate network it listens on every address of that network.
    """
    directory = launcher.layout.directory
    files = {name: directory / f"{kind.role}.{name}" for name in ("img", "stats", "opal")}
    for path in files.values():
        path.unlink(missing_ok=True)
    with files["img"].open("wb") as file:
        file.truncate(DRIVE_BYTES)
    options = {
        "backing": files["img"],
        "size-bytes": DRIVE_BYTES,
        "block-size": BLOCK_BYTES,
        "model": kind.model,
        "serial": kind.serial,
        "nqn": kind.nqn,
        "port": 0,
        "stats": files["stats"],
        "control": launcher.sockets / kind.role,
    }
    command = ["env", f"VIRTUAL_DRIVE_CACHE={cache_dir()}", *module_command("drive")]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    if kind.opal:
        command += ["--opal", "--state", str(files["opal"]), "--psid-file", str(psid)]
    if network.pid is not None:
        command += ["--address", "0.0.0.0"]
    command = network.enter(command)
    ready = launcher.start_ready(f"drive-{kind.role}", command)
    state: DriveState = {
        "pid": ready["pid"],
        "port": ready["port"],
        "nqn": kind.nqn,
        "backing": str(files["img"]),
        "stats": str(files["stats"]),
        "control": str(options["control"]),
        "model": kind.model,
        "serial": kind.serial,
        "size_bytes": DRIVE_BYTES,
        "block_size": BLOCK_BYTES,
        "medium": kind.medium,
        # As an inventory names it. A new virtual drive that encrypts reads as random bytes, which
        # could be somebody's volume.
        "disk": {
            "by_id": by_id(kind.model, kind.serial),
            "serial": kind.serial,
            "size_bytes": DRIVE_BYTES,
        },
    }
    if kind.opal:
        state["disk"]["erase"] = kind.serial
        state["psid_file"] = str(psid)
    return state


def start_meter(launcher: Launcher, *, truth: bool = False) -> MeterState:
    """Start the meter, which reads the lab's state file; returns its part of the state.

    With `truth` it writes down every look at the energies, some 40 MB an hour.
    """
    layout = launcher.layout
    link = layout.directory / "meter"
    link.unlink(missing_ok=True)
    command = module_command("lab.meter", "--state", str(layout.state), "--link", str(link))
    command += ["--truth", str(layout.truth), "--truth-period", "0"] if truth else []
    ready = launcher.start_ready("meter", command)
    return {"pid": ready["pid"], "port": str(link)}
