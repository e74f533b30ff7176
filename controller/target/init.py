"""`fde init`: look at a target and at the meters here, and write the inventory of them.

Disks are listed by what the target says of them and chosen by serial number; what is in use, or
holds data, is taken only where its serial is named, and `fde check` refuses it even then. Nothing
on the target is written. An inventory that is there is kept unless it is to be replaced, and its
secrets are kept even then: the drive may be owned with them.
"""

from __future__ import annotations

import json
import re
import secrets as random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from getpass import getpass
from pathlib import Path
from typing import Any

import yaml

from contract import names
from contract.command_results import InitResult
from contract.errors import ControllerError
from contract.files import write, yaml_text
from controller.target import inventory
from controller.target import playbook as inventories
from controller.target.doctor import probe
from controller.target.doctor.controller_host import PSID
from controller.target.survey import ask as ask_target

Ask = Callable[[str, bool], str]
Say = Callable[[str], None]
GIB, MIB = 2**30, 2**20
DEFAULT_EXTENT_BYTES = 16 * GIB
# Of the smallest disk, so that the partition and its headers have room.
EXTENT_SHARE = 0.9
ASSETS = {
    "kernel_tree": "kernel_tree.tar.gz",
    "kernel_grep": "kernel_grep.tar.gz",
    "clip": "clip.mpg",
}
# What means something else to Ansible, or nothing.
NO_HOSTS = ("", "all", "ungrouped", "targets", "localhost")
ROLES = {
    "plain": "the disk without encryption of its own (also carries dm-crypt)",
    "sed": "the self-encrypting (Opal) disk",
}


@dataclass(frozen=True)
class Address:
    """How the target is reached."""

    host: str
    user: str = "root"
    port: int = 22
    key: str | None = None
    known_hosts: str | None = None
    options: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, text: str, key: Path | None, known_hosts: Path | None, options: tuple[str, ...] = ()
    ) -> Address:
        """From `[USER@]HOST[:PORT]`. Raises ControllerError."""
        match = re.fullmatch(r"(?:([^@\s]+)@)?(\[[0-9a-fA-F:]+\]|[^\s:@\[\]]+)(?::(\d+))?", text)
        if match is None or text.startswith("-"):
            raise ControllerError(f"{text!r} names no host: write [USER@]HOST[:PORT].")
        at, known = (None if p is None else str(p.absolute()) for p in (key, known_hosts))
        name, user = match[2].strip("[]"), match[1] or "root"
        return cls(name, user, int(match[3] or 22), at, known, options)

    @property
    def ssh(self) -> dict[str, Any]:
        """As a resolved target has it."""
        return asdict(self) | {"options": list(self.options)}


@dataclass(frozen=True)
class Options:
    """What is said beforehand: `host` is None where the target is this machine, `roles` are serial
    numbers, `give_up` those of disks whose contents may be lost, `meters` and `settings` as they
    stand on the command line."""

    host: Address | None
    roles: Mapping[str, str] = field(default_factory=dict)
    meters: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    origin: str = "measured"
    give_up: tuple[str, ...] = ()
    extent_gib: float | None = None
    replace: bool = False


def at_terminal(question: str, hidden: bool) -> str:
    """An answer that is typed; a hidden one is not shown."""
    return getpass(question) if hidden else input(question)


def run(folder: Path, options: Options, ask: Ask | None, say: Say) -> InitResult:
    """Write the inventory; `ask` is None where nobody is to be asked. Raises ControllerError."""
    from instrumentation.ports import all_ports, what_is_here

    if (folder / "hosts.yml").exists() and not options.replace:
        raise ControllerError(
            f"There is an inventory in {folder}: name another folder, or say --replace (its "
            "secrets are kept)."
        )
    meters = [_meter(n, text, options) for n, text in enumerate(options.meters)]
    answer = ask_target({"ssh": options.host and options.host.ssh}, "survey")
    for disk in answer["disks"]:
        _show(disk, say)
    roles = _chosen(answer["disks"], options.roles, ask)
    say(what_is_here())
    ports = all_ports()
    meters = meters or _found_meters(ports, options, ask)
    for name, meter_probe in probe.all_of(meters).items():
        watts = ", ".join(
            f"{channel} {power_w:.3g} W" for channel, power_w in meter_probe.watts.items()
        )
        period = f"a record each {meter_probe.period_s * 1e3:.4g} ms"
        say(f"meter {name}: {meter_probe.error or f'{watts}, {period}'}")
    extent_bytes = _extent_bytes(roles, options)
    name = host_name(answer["name"], options.host)
    write_files(folder, options, roles, meters, extent_bytes, name=name)
    locking = [role for role, disk in roles.items() if role != "plain" and disk["opal"] is not None]
    waiting = list(_secrets(folder / "secrets.json", bool(locking), ask))
    waiting += [
        f"{host}: {problem}"
        for host, problems in inventories.resolve(folder).refused.items()
        for problem in problems
    ]
    say(f"\nwritten: {folder}/hosts.yml, group_vars/targets.yml, secrets.json (mode 0600)")
    for sentence in waiting:
        say(f"  to do  {sentence}")
    say(f"next: fde doctor --inventory {folder}; fde check --inventory {folder}")
    chosen = {role: disk["serial"] for role, disk in roles.items()}
    labels = tuple(port.label for port in ports)
    return InitResult(True, str(folder), tuple(answer["disks"]), labels, chosen, tuple(waiting))


def _show(disk: Mapping[str, Any], say: Say) -> None:
    size = f"{disk['size_bytes']:,} bytes"
    serial = f"serial {disk['serial']}" if disk["serial"] else "without a serial number, unusable"
    say(f"disk {disk['name']}: {disk['model']} {disk['transport']}, {serial}, {size}")
    say(f"    holds {disk['contents']}; {disk['opal_words']}")
    for use in disk["uses"]:
        say(f"    in use: {use}")


def _chosen(
    disks: Sequence[Mapping[str, Any]], named: Mapping[str, str], ask: Ask | None
) -> dict[str, Mapping[str, Any]]:
    """The disk of each role; at least one. Raises ControllerError."""
    roles: dict[str, Mapping[str, Any]] = {}
    for role, serial in named.items():
        matches = [disk for disk in disks if serial in (disk["serial"], disk["by_id"]) and serial]
        if len(matches) == 1 and not matches[0]["serial"]:
            raise ControllerError(
                f"The disk {serial} reports no serial number, by which a disk is known before it "
                "is written: take another."
            )
        if len(matches) != 1 or not matches[0]["by_id"]:
            known = (
                ", ".join(
                    f"{disk['serial'] or 'one without'} ({disk['by_id'] or disk['name']})"
                    for disk in disks
                )
                or "none"
            )
            raise ControllerError(
                f"{len(matches)} disks of the target have the serial {serial}; known: {known}. "
                "Give a serial that one disk has, or its path below /dev/disk/by-id."
            )
        if matches[0]["uses"]:
            raise ControllerError(
                f"The disk {serial} is in use ({'; '.join(matches[0]['uses'])}): name another as "
                f"{role}."
            )
        roles[role] = matches[0]
    free = [d for d in disks if d["by_id"] and d["serial"] and not d["uses"]]
    for role in ROLES if not named else ():
        fit = [d for d in free if (d["opal"] is not None) == (role == "sed")]
        if ask is None:
            # Without anybody to ask, only what holds nothing, and of which there is one.
            fit = [d for d in fit if d["blank"] or d["ours"] or (role == "sed" and _factory(d))]
            if len(fit) == 1:
                roles[role] = fit[0]
        elif fit:
            serials = ", ".join(d["serial"] for d in fit)
            typed = ask(
                f"Serial of {ROLES[role]}. ALL ON IT WILL BE LOST. {serials}; empty for none: ",
                False,
            )
            if typed.strip():
                roles |= _chosen(disks, {role: typed.strip()}, ask)
    if not roles:
        raise ControllerError(
            "No disk was chosen: name what may be erased by --plain SERIAL, --sed SERIAL or both, "
            "or any number by --disk NAME=SERIAL. "
            f"Not in use: {', '.join(d['serial'] for d in free) or 'none'}."
        )
    return roles


def named_disks(plain: str | None, sed: str | None, others: Sequence[str]) -> dict[str, str]:
    """Serial by name, as given on the command line. Raises ControllerError."""
    roles = {role: serial for role, serial in (("plain", plain), ("sed", sed)) if serial}
    for text in others:
        name, _, serial = text.partition("=")
        if not inventory.NAME.fullmatch(name) or not serial or name in roles:
            raise ControllerError(f"{text!r} names no disk: write NAME=SERIAL, each name once.")
        roles[name] = serial
    return roles


def _factory(disk: Mapping[str, Any]) -> bool:
    """A self-encrypting disk that nobody owns and that has neither table nor signature."""
    return disk["opal"] is not None and not disk["opal"]["owned"] and not disk["known"]


def usb_ids() -> list[str]:
    """Of every kind of meter that has some of its own, each once."""
    from instrumentation.meters import registry

    return list(dict.fromkeys(i for kind in registry.kinds() for i in registry.load(kind).usb_ids))


def _meter(number: int, text: str, options: Options) -> dict[str, Any]:
    """From KIND@PORT=CHANNELS, or the address of one that answers HTTP, which is asked what it is.
    Raises ControllerError."""
    if re.match("https?://", text):
        return _plug(f"meter{number}", *text.partition("=")[::2], options)
    match = re.fullmatch(r"([a-z0-9_]+)@(.+)=([^=]+)", text)
    pairs = [pair.partition(":") for pair in match[3].split(",")] if match else []
    if match is None or not all(channel and name for channel, _, name in pairs):
        raise ControllerError(
            f"{text!r} names no meter: write KIND@PORT=CHANNELS, as "
            "smartpower3@usb=0:system,1:drive, or the http:// address of a plug."
        )
    channels = {channel: name for channel, _, name in pairs}
    return _entry(f"meter{number}", match[1], match[2], channels, options)


def _plug(name: str, address: str, channels: str, options: Options) -> dict[str, Any]:
    """By its profile; without CHANNELS its only one, or the sum of all phases, is `system`."""
    from instrumentation import network
    from instrumentation.ports import check_form

    try:
        check_form(address)
        profile, plug_channels = network.recognised(address)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ControllerError(
            f"The meter {address} was not recognised ({why}): look whether it answers, or describe "
            f"it by --meter http@{address}=CHANNELS and --setting (docs/hardware.md)."
        ) from None
    totals = [c for c in plug_channels if len(plug_channels) == 1 or c == "total"]
    if not channels and not totals:
        raise ControllerError(
            f"The meter {address} has the channels {', '.join(plug_channels)}: say what they "
            f"measure, as --meter {address}={plug_channels[0]}:system."
        )
    entry = _meter(0, f"http@{address}={channels or totals[0] + ':system'}", options)
    settings = {"profile": profile, **_settings(name, options)}
    return {**entry, "name": name, "settings": settings}


def _settings(name: str, options: Options) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for text in options.settings:
        match = re.fullmatch(r"([A-Za-z0-9_-]+)\.([a-z_]+)=(.*)", text, re.DOTALL)
        if match is None:
            raise ControllerError(f"{text!r} is no setting: write METER.NAME=VALUE.")
        if match[1] == name:
            settings[match[2]] = yaml.safe_load(match[3])
    return settings


def _entry(
    name: str, kind: str, port: str, channels: Mapping[str, str], options: Options
) -> dict[str, Any]:
    entry = {"name": name, "kind": kind, "port": port, "origin": options.origin}
    settings = _settings(name, options)
    return {**entry, "channels": dict(channels), **({"settings": settings} if settings else {})}


def _found_meters(ports: Sequence[Any], options: Options, ask: Ask | None) -> list[dict[str, Any]]:
    """Of ports whose USB id belongs to one kind of meter alone, with its channels in order."""
    from instrumentation.meters import registry

    drivers = {kind: registry.load(kind) for kind in registry.kinds()}
    meters: list[dict[str, Any]] = []
    for port in ports:
        kinds = [kind for kind, driver in drivers.items() if port.usb_id in driver.usb_ids]
        if len(kinds) != 1:
            continue
        channel_names = drivers[kinds[0]].own_channels
        channels = dict(zip(channel_names, ("system", "drive"), strict=False))
        if ask is not None:
            typed = ask(
                f"A {kinds[0]} at {port.label}: what its channels {', '.join(channel_names)} "
                "measure, as 0:system,1:drive; empty to leave it out: ",
                False,
            ).strip()
            if not typed:
                continue
            meters.append(_meter(len(meters), f"{kinds[0]}@{port.name}={typed}", options))
        else:
            meters.append(_entry(f"meter{len(meters)}", kinds[0], port.name, channels, options))
    return meters


def _extent_bytes(roles: Mapping[str, Mapping[str, Any]], options: Options) -> int:
    if options.extent_gib is not None:
        return int(options.extent_gib * GIB) // MIB * MIB
    smallest = min(int(disk["size_bytes"]) for disk in roles.values())
    return min(DEFAULT_EXTENT_BYTES, int(smallest * EXTENT_SHARE) // MIB * MIB)


def host_name(machine: str, host: Address | None) -> str:
    """Name a host of Ansible's after its machine, or its address where it has no name of its own.

    What is measured is named after the host: two inventories seldom have one of the same name.
    """
    label = machine.partition(".")[0]
    if label in ("", "localhost") and host is not None:
        label = host.host
    name = re.sub("[^A-Za-z0-9._-]+", "-", label).strip("._-")[:48]
    return f"host-{name}".rstrip("-") if name in NO_HOSTS else name


def write_files(
    folder: Path,
    options: Options,
    roles: Mapping[str, Mapping[str, Any]],
    meters: Sequence[Mapping[str, Any]],
    extent_bytes: int,
    *,
    name: str,
) -> None:
    """hosts.yml, group_vars/targets.yml, and .gitignore, which keeps the secrets out of git."""
    (folder / "group_vars").mkdir(parents=True, exist_ok=True)
    write(folder / "hosts.yml", (line.encode() for line in _hosts(name, options.host)))
    lines = _variables(options, roles, meters, extent_bytes)
    write(folder / "group_vars" / "targets.yml", (line.encode() for line in lines))
    write(folder / ".gitignore", [b"secrets.json\n"])


def _hosts(name: str, host: Address | None) -> Iterator[str]:
    yield "---\n# Written by fde init; every variable: ansible/roles/target_spec/README.md.\n"
    yield f"targets:\n  hosts:\n    {yaml_text(name)}:\n"
    if host is None:
        yield "      # Root's rights come from sudo, which must not ask for a password.\n"
        yield "      ansible_connection: local\n"
        yield """      ansible_become: "{{ lookup('ansible.builtin.pipe', 'id -u') != '0' }}"\n"""
        return
    yield f"      ansible_host: {yaml_text(host.host)}\n      ansible_port: {host.port}\n"
    yield f"      ansible_user: {yaml_text(host.user)}  # root: it writes disks, reads RAPL\n"
    if host.key:
        yield f"      ansible_ssh_private_key_file: {yaml_text(host.key)}\n"
    if host.known_hosts or host.options:
        file = json.dumps(host.known_hosts, ensure_ascii=False)  # unquoted it is a list
        known_hosts = [f"UserKnownHostsFile={file}"] if host.known_hosts else []
        words = ["StrictHostKeyChecking=yes", *known_hosts, *host.options]
        args = " ".join("-o '" + word.replace("'", "'\\''") + "'" for word in words)
        yield f"      ansible_ssh_common_args: {yaml_text(args)}\n"
        yield f"      fde_ssh_options: {yaml_text(list(host.options))}\n"
    if host.known_hosts:
        yield f"      fde_ssh_known_hosts: {yaml_text(host.known_hosts)}\n"


def _variables(
    options: Options,
    roles: Mapping[str, Mapping[str, Any]],
    meters: Sequence[Mapping[str, Any]],
    extent_bytes: int,
) -> Iterator[str]:
    yield (
        "---\n# THE DISKS NAMED HERE WILL BE ERASED by fde provision, if they are still as named, "
        "unused, and empty or ours.\nfde_disks:\n"
    )
    for role, disk in roles.items():
        held = f"{disk['model']}; held when it was looked at: {disk['contents']}"
        yield f"  {role}:  # {' '.join(names.printable(held).split())}\n"
        for key in ("by_id", "serial", "size_bytes"):
            yield f"    {key}: {yaml_text(disk[key])}\n"
        if disk["serial"] in options.give_up and not (disk["blank"] or disk["ours"]):
            yield "    # What lies on it now may be lost; written to since, it is refused again.\n"
            yield f"    erase: {yaml_text(disk['serial'] + ' ' + disk['print'])}\n"
    yield "\n# What the figures are: measured on a real machine, modelled in a lab.\n"
    yield f"fde_origin: {options.origin}\n"
    yield "\n# Of this controller, mode 0600: luks_passphrase, opal_admin_pin, sed_psid.\n"
    yield 'fde_secrets_file: "{{ inventory_dir }}/secrets.json"\n'
    yield "\n# Data that every configuration uses, in bytes, a multiple of 1 MiB.\n"
    yield f"fde_extent_bytes: {extent_bytes}\n"
    yield "\n# What fde assets makes on the target; give sha256 for files of your own.\n"
    yield "fde_assets:\n"
    place = "/usr/share/fde-testbed"
    for name, file in ASSETS.items():
        yield f"  {name}: {{path: {place}/{file}, sums: {place}/SHA256SUMS}}\n"
    yield "\n# Kinds, ports, channels and settings: fde meters, and docs/hardware.md.\nfde_meters:"
    yield "\n" if meters else " []\n"
    for meter in meters:
        for number, (key, value) in enumerate(meter.items()):
            yield f"  {'-' if not number else ' '} {key}: {yaml_text(value)}\n"
    if set(roles) - set(ROLES):
        yield "\n# What is compared: each of these on each of its disks, as plain-on-NAME.\n"
        yield "fde_configurations:\n"
        opal = [role for role, disk in roles.items() if disk["opal"] is not None]
        aes = {"cipher": "aes-xts-plain64", "key_bits": 256, "sector_size": 4096}
        stacks = [
            {"name": "plain", "kind": "plain", "disk": list(roles)},
            {"name": "dmcrypt-aes256", "kind": "dmcrypt", "disk": list(roles), **aes},
            *([{"name": "opal", "kind": "opal", "disk": opal}] if opal else []),
        ]
        yield from (f"  - {yaml_text(stack)}\n" for stack in stacks)
    yield (
        "\n# Prices and habits for the payback (fde_assumptions), other configurations "
        "(fde_configurations) and the\n# database server (fde_database) have defaults: "
        "ansible/group_vars/all.yml.\n"
    )


def _secrets(path: Path, drive: bool, ask: Ask | None) -> Iterator[str]:
    """Write secrets that were drawn at random, unless there are some; what is left to be done."""
    if path.exists():
        return
    values = {name: random.token_hex(16) for name in ("luks_passphrase", "opal_admin_pin")}
    if drive:
        typed = ask("PSID from the drive's label, empty for none: ", True) if ask else ""
        psid = typed.replace("-", "").strip().upper()
        if PSID.fullmatch(psid):
            values["sed_psid"] = psid
        else:
            yield (
                f"add sed_psid, the 32 characters on the drive's label, to {path}: without it a "
                "lost PIN cannot be mended."
            )
    write(path, [json.dumps(values, indent=1).encode()], 0o600)
    yield f"keep a copy of {path} elsewhere: without PIN and PSID a drive stays locked forever."
