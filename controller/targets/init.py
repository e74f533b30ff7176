"""`fde init`: writes an inventory of a target, its disks and the meters of this machine.

Disks are listed as the target reports them and chosen by serial number. One with data is taken only
if its serial is named, and `fde check` refuses it even then. Nothing is written on the target.
An existing inventory is overwritten only on request, its secrets never: they may own the drive.
"""

from __future__ import annotations

import json
import re
import secrets as random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from getpass import getpass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from contract import names, schema
from contract.disks import SurveyedDisk
from contract.errors import ControllerError
from contract.files import write, yaml_text
from contract.plan import TARGET_FORMAT, Filesystem, MeterEntry, SshLink, TargetDocument
from controller.targets import inventory, playbook, ssh_link
from controller.targets.fitness import probe
from controller.targets.meter_entries import Ask, MeterOptions
from controller.targets.secrets import PSID_FORM
from controller.targets.survey import list_disks

Say = Callable[[str], None]
GIB, MIB = 2**30, 2**20
DEFAULT_EXTENT_BYTES = 16 * GIB
# Share of the smallest disk that is used; partition table and headers need the other tenth.
EXTENT_SHARE = 0.9
ASSETS = {
    "kernel_tree": "kernel_tree.tar.gz",
    "kernel_grep": "kernel_grep.tar.gz",
    "clip": "clip.mpg",
}
# Names that Ansible reserves, or that this project's inventories use.
NO_HOSTS = ("", "all", "ungrouped", "targets", "localhost")
ROLES = {
    "plain": "the disk without encryption (also carries dm-crypt)",
    "sed": "the self-encrypting (Opal) disk",
}
_AES: dict[str, str | int | list[str]] = {
    "cipher": "aes-xts-plain64",
    "key_bits": 256,
    "sector_size": 4096,
}


@dataclass(frozen=True)
class Options:
    """The options of `fde init`; `link` is None if the target is this machine.

    `roles` maps roles to serial numbers; `give_up` are serial numbers of disks that may be erased.
    """

    link: SshLink | None
    roles: Mapping[str, str] = field(default_factory=dict)
    meters: MeterOptions = field(default_factory=MeterOptions)
    give_up: tuple[str, ...] = ()
    replace: bool = False


def parse_link(text: str) -> SshLink:
    """Parse `[USER@]HOST[:PORT]`; ssh's configuration has the defaults. Users but root need sudo.

    Raises ControllerError.
    """
    match = re.fullmatch(
        r"(?:([^@\s]+)@)?(\[[0-9a-fA-F:]+(?:%\w+)?\]|[^\s:@\[\]]+)(?::(\d+))?", text
    )
    if match is None or text.startswith("-"):
        raise ControllerError("invalid-host", text=text)
    port = int(match[3]) if match[3] else None
    link = ssh_link.link(
        match[2].strip("[]"), user=match[1], port=port, key=None, arguments={}, become=True
    )
    return replace(link, become=link.user != "root")


def at_terminal(question: str, hidden: bool) -> str:
    """Ask at the terminal, without echo if `hidden`."""
    return getpass(question) if hidden else input(question)


FOREIGN = (
    "An inventory is code: Ansible runs the templates, scripts and commands in it as you. Use none "
    "from people whose programs you would not run."
)


def run(folder: Path, options: Options, ask: Ask | None, say: Say) -> None:
    """Write the inventory; without `ask` no question is asked. Raises ControllerError."""
    from instrumentation.ports import all_ports, describe_ports

    if (folder / "hosts.yml").exists() and not options.replace:
        raise ControllerError("inventory-exists", folder=folder)
    meters = options.meters.parse()
    survey = list_disks(
        TargetDocument(TARGET_FORMAT, {}, 0, Filesystem("ext4", (), ""), (), ssh=options.link)
    )
    for disk in survey.disks:
        serial = f"serial {disk.serial}" if disk.serial else "without a serial number, unusable"
        size = f"{disk.size_bytes:,} bytes"
        say(f"disk {disk.name}: {disk.model} {disk.transport}, {serial}, {size}")
        say(f"    holds {disk.contents}; {disk.opal_words}")
        for use in disk.uses:
            say(f"    in use: {use}")
    disks = choose_disks(survey.disks, options.roles, ask)
    say(describe_ports())
    meters = meters or options.meters.find(all_ports(), ask)
    for name, result in probe.probe_all(meters).items():
        watts = ", ".join(f"{channel} {w:.3g} W" for channel, w in result.watts.items())
        say(f"meter {name}: {result.error or f'{watts}, a record each {result.period_s:.4g} s'}")
    write_inventory(folder, options, disks, meters, host_name(survey.name, options.link))
    locking = [role for role, disk in disks.items() if role != "plain" and disk.opal is not None]
    open_points = list(_write_secrets(folder / inventory.SECRETS_FILE, bool(locking), ask))
    open_points += [
        f"{host}: {problem}"
        for host, problems in playbook.resolve(folder).refused.items()
        for problem in problems
    ]
    names = f"hosts.yml, group_vars/targets.yml, {inventory.SECRETS_FILE} (mode 0600)"
    say(f"\nwritten: {folder}/{names}")
    for sentence in open_points:
        say(f"  to do  {sentence}")
    say(FOREIGN)
    say(f"next: fde check --inventory {folder}")


def choose_disks(
    disks: Sequence[SurveyedDisk], named: Mapping[str, str], ask: Ask | None
) -> dict[str, SurveyedDisk]:
    """Choose a disk for each role; raises ControllerError if none can be chosen."""
    if named:
        return {role: _find_disk(disks, role, serial) for role, serial in named.items()}
    chosen: dict[str, SurveyedDisk] = {}
    free = [disk for disk in disks if disk.by_id and disk.serial and not disk.uses]
    for role, meaning in ROLES.items():
        fit = [disk for disk in free if (disk.opal is not None) == (role == "sed")]
        if ask is None:
            # Without a user to ask, take a disk only if it is empty and the only one; one with Opal
            # must have no owner, partition table or signature.
            answering = [d for d in fit if d.opal is not None and d.opal.locked is not None]
            unused = [d for d in answering if d.opal and not d.opal.owned and not d.known]
            fit = [disk for disk in fit if disk.blank or disk.ours or disk in unused]
            if len(fit) == 1:
                chosen[role] = fit[0]
        elif fit:
            serials = ", ".join(disk.serial for disk in fit)
            question = f"Serial of {meaning}. ALL ON IT WILL BE LOST. {serials}; empty for none: "
            if typed := ask(question, False).strip():
                chosen[role] = _find_disk(disks, role, typed)
    if not chosen:
        raise ControllerError(
            "no-disk-chosen", free=", ".join(disk.serial for disk in free) or "none"
        )
    return chosen


def _find_disk(disks: Sequence[SurveyedDisk], role: str, serial: str) -> SurveyedDisk:
    """Return the unused disk with a serial number or path; raises ControllerError."""
    matches = [disk for disk in disks if serial in (disk.serial, disk.by_id) and serial]
    if len(matches) == 1 and not matches[0].serial:
        raise ControllerError("disk-without-serial", serial=serial)
    if len(matches) != 1 or not matches[0].by_id:
        listing = [f"{d.serial or 'one without'} ({d.by_id or d.name})" for d in disks]
        raise ControllerError(
            "serial-not-one", disks=len(matches), serial=serial, known=", ".join(listing) or "none"
        )
    if matches[0].uses:
        uses = "; ".join(matches[0].uses)
        raise ControllerError("disk-in-use", serial=serial, uses=uses, role=role)
    return matches[0]


def named_disks(texts: Sequence[str]) -> dict[str, str]:
    """Parse texts `NAME=SERIAL` into serials by name; raises ControllerError."""
    roles: dict[str, str] = {}
    for text in texts:
        name, _, serial = text.partition("=")
        if not inventory.NAME.fullmatch(name) or not serial or name in roles:
            raise ControllerError("invalid-disk", text=text)
        roles[name] = serial
    return roles


def host_name(machine: str, link: SshLink | None) -> str:
    """Return a name for Ansible from the machine's name, or else from its address.

    Suites are named after the host, so names should differ between inventories.
    """
    label = machine.partition(".")[0]
    if label in ("", "localhost") and link is not None:
        label = link.host
    name = re.sub("[^A-Za-z0-9._-]+", "-", label).strip("._-")[:48]
    return f"host-{name}".rstrip("-") if name in NO_HOSTS else name


def write_inventory(
    folder: Path,
    options: Options,
    disks: Mapping[str, SurveyedDisk],
    meters: Sequence[MeterEntry],
    name: str,
) -> None:
    """Write hosts.yml, group_vars/targets.yml, and a .gitignore that excludes the secrets."""
    smallest = min(disk.size_bytes for disk in disks.values())
    extent_bytes = min(DEFAULT_EXTENT_BYTES, int(smallest * EXTENT_SHARE) // MIB * MIB)
    hosts = {"name": name, "link": options.link}
    targets = {
        "disks": disks,
        "give_up": options.give_up,
        "origin": options.meters.origin,
        "extent": f"{extent_bytes // MIB} MiB",
        "assets": ASSETS,
        "meters": schema.write(meters),
        "configurations": _configurations(disks),
        "secrets_file": inventory.SECRETS_FILE,
    }
    (folder / "group_vars").mkdir(parents=True, exist_ok=True)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"yaml_text": yaml_text, "sentence": names.sentence}
    for path, values in (("hosts.yml", hosts), ("group_vars/targets.yml", targets)):
        template = environment.get_template(f"{Path(path).name}.j2")
        write(folder / path, [template.render(values).encode()])
    write(folder / ".gitignore", [b".secrets*\nsecrets*.json\n"])


def _configurations(disks: Mapping[str, SurveyedDisk]) -> list[dict[str, str | int | list[str]]]:
    """Return configurations for disks that the default configurations do not name, or none."""
    if not set(disks) - set(ROLES):
        return []
    configurations: list[dict[str, str | int | list[str]]] = [
        {"name": "plain", "kind": "plain", "disk": list(disks)},
        {"name": "dmcrypt-aes256", "kind": "dmcrypt", "disk": list(disks), **_AES},
    ]
    if opal := [role for role, disk in disks.items() if disk.opal is not None]:
        configurations.append({"name": "opal", "kind": "opal", "disk": opal})
    return configurations


def _write_secrets(path: Path, drive: bool, ask: Ask | None) -> Iterator[str]:
    """Write random secrets unless the file exists; yield what the user still has to do."""
    visible = path.with_name(path.name.lstrip("."))
    if visible.exists() and not path.exists():
        visible.rename(path)  # it may own the drive; there, Ansible would read it as an inventory
    if path.exists():
        return
    values = {name: random.token_hex(16) for name in ("luks_passphrase", "opal_admin_pin")}
    if drive:
        typed = ask("PSID from the drive's label, empty for none: ", True) if ask else ""
        psid = typed.replace("-", "").strip().upper()
        if PSID_FORM.fullmatch(psid):
            values["sed_psid"] = psid
        else:
            yield (
                f"Add sed_psid, the 32 characters on the drive's label, to {path}: without it a "
                "lost PIN locks the drive forever."
            )
    write(path, [json.dumps(values, indent=1).encode()], 0o600)
    yield f"Keep a copy of {path} elsewhere: without PIN and PSID a drive stays locked forever."
