"""What device-mapper reports of our mappings, read into the terms in which they are planned."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent.storage.base import Layer, Segment
from agent.storage.devices import BLOCK, SECTOR_BYTES, dm_name, is_whole_disk
from agent.storage.guard import MAPPING
from agent.storage.uses import chain, find_uses, number_of
from agent.storage.uses import mounts as all_mounts
from agent.system.command import CommandError, run
from contract import system_text
from contract.errors import AgentError
from contract.problem import wordings_of

ENCRYPTING = ("crypt", "inlinecrypt")  # targets whose tables have a key after the cipher


class TableError(AgentError):
    """A table cannot be read."""


class HeldError(AgentError):
    """A mapping cannot be removed."""

    WORDINGS = wordings_of("agent/storage", "HeldError")


def texts(mappings: Iterable[str]) -> dict[str, list[str]]:
    """Return the lines of the table of each of these mappings, by name.

    dmsetup shows dm-crypt's keys as zeros, but not dm-inlinecrypt's.
    """
    lines: dict[str, list[str]] = {name: [] for name in mappings}
    for line in run(["dmsetup", "table"]).out.splitlines():
        name, _, rest = line.partition(": ")
        if name in lines and rest.strip():
            lines[name].append(rest.strip())
    return lines


def layers(mappings: Mapping[str, str], lines: Mapping[str, list[str]]) -> list[Layer]:
    """Return these mappings (name to kernel name) as they are; raises TableError."""
    stack = []
    for name, kernel in mappings.items():
        # "CRYPT-LUKS2-<its own>-<name>": the first two words tell who made it.
        made_by = "-".join(uuid(kernel).split("-")[:2])
        segments = []
        for segment in map(parse_line, lines.get(name, [])):
            below = Path(f"/sys/dev/block/{segment.device}").resolve().name
            device = segment.device and (dm_name(below) or below)
            segments.append(replace(segment, device=device))
        stack.append(Layer(name, made_by, tuple(segments)))
    return stack


def parse_line(text: str) -> Segment:
    """Parse a line of a `linear`, `crypt`, `inlinecrypt` or `integrity` table, else its target.

    `device` is `major:minor`. See the kernel's documentation of device-mapper. Raises TableError.
    """
    fields = text.split()
    try:
        length, target = int(fields[1]), fields[2]
        if target == "linear":
            return Segment(length, target, fields[3], int(fields[4]))
        if target == "integrity":
            return Segment(
                length, target, fields[3], int(fields[4]), options=(f"mode:{fields[6]}",)
            )
        if target not in ENCRYPTING:
            return Segment(length, target)
        if target == "inlinecrypt":
            del fields[5]  # the type of the key
        options = fields[9 : 9 + int(fields[8])] if len(fields) > 8 else []
        sizes = [option.partition(":")[2] for option in options if option.startswith("sector_size")]
        return Segment(
            length,
            target,
            fields[6],
            int(fields[7]),
            cipher=fields[3],
            key_bits=_key_bits(fields[4]),
            sector_size=int(sizes[0]) if sizes else SECTOR_BYTES,
            iv_offset_sectors=int(fields[5]),
            options=tuple(sorted(o for o in options if not o.startswith("sector_size"))),
        )
    except (IndexError, ValueError) as error:
        # What follows may be a key.
        start = " ".join(fields[:4])
        raise TableError("table-unread", start=start) from error


def without_key(text: str) -> str:
    """Return a line with its key left out, also one that dmsetup has zeroed."""
    fields = text.split()
    if len(fields) > 4 and fields[2] in ENCRYPTING:
        fields[4] = f"<{_key_bits(fields[4])}-bit-key>"
    return " ".join(fields)


def _key_bits(field: str) -> int:
    """Return the bits of a table's key.

    A key in the kernel's keyring is `:<bytes>:<type>:<name>`, none `-` or, zeroed by dmsetup, `0`,
    another (zeroed) hex, of two digits a byte.
    """
    if len(field) == 1:
        return 0
    return 8 * int(field.split(":")[1]) if field.startswith(":") else 4 * len(field)


PATH = f"/dev/mapper/{MAPPING}"
CONTAINER = f"{MAPPING}-container"
OURS = "FDE-TESTBED"  # the start of the UUID of mappings that we make ourselves
EXTERNAL = "FDE-EXTERNAL"  # the same, of those below and above another product's device
_NAMES = re.compile(rf"{MAPPING}(_\d+|_dif|-container)?")
# cryptsetup's way of closing an Opal mapping locks the range without its PIN.
_LOCKS_ON_CLOSING = "CRYPT-LUKS2-OPAL"


def is_ours(name: str) -> bool:
    """Whether a device-mapper name is one of ours: `fde-data`, a cascade's layer, a container."""
    return _NAMES.fullmatch(name) is not None


def devices() -> dict[str, str]:
    """Our mappings that exist: name to kernel name, which is empty while one has no table.

    device-mapper is asked, for what has no table yet is not to be seen in sysfs.
    """
    argv = ["dmsetup", "info", "-c", "--noheadings", "--separator", ":", "-o", "name,minor"]
    kernel_names = {}
    for line in run(argv).out.splitlines():
        name, _, minor = line.strip().partition(":")
        if is_ours(name):
            kernel = f"dm-{minor}"
            kernel_names[name] = kernel if (BLOCK / kernel).exists() else ""
    return kernel_names


def strangers(disks: Collection[str]) -> list[str]:
    """List mappings of our names that stand on other disks than these, so are not ours.

    `disks` are kernel names. Ours on a disk that has gone stands on nothing that the kernel still
    shows.
    """
    foreign = []
    for name, kernel in devices().items():
        if name == MAPPING and uuid(kernel).startswith(EXTERNAL):
            continue  # what a product stands on is its own secret; its container is looked at
        wholes = {below for below in chain(kernel) if is_whole_disk(below)} if kernel else set()
        if wholes - set(disks):
            foreign.append(f"{name} on {', '.join(sorted(wholes - set(disks)))}")
    return foreign


def create(name: str, lines: list[str], uuid: str | None = None) -> None:
    """Make a mapping from the lines of its table, which are on no command line."""
    run(
        ["dmsetup", "create", name, "--uuid", uuid or f"{OURS}-{name}"],
        stdin="".join(f"{line}\n" for line in lines).encode(),
    )


def close() -> None:
    """Take all our mappings down, those on which nothing stands first.

    Raises HeldError for the first that is held, after those below it.
    """
    left, held = devices(), None
    while left:
        free = [
            name
            for name, kernel in left.items()
            if not (kernel and any((BLOCK / kernel / "holders").iterdir()))
        ]
        for name in free or list(left):
            try:
                _remove(name, left.pop(name))
            except HeldError as error:
                held = held or error
    if held is not None:
        raise held


def _remove(name: str, kernel: str) -> None:
    """Remove a mapping; one that is held loses its key, and answers with errors from then on."""
    opal = uuid(kernel).startswith(_LOCKS_ON_CLOSING)
    try:
        run(["cryptsetup", "close", name] if opal else ["dmsetup", "remove", "--retry", name])
    except CommandError as error:
        with suppress(CommandError):
            run(["dmsetup", "remove", "--force", name])
            return
        holders = "; ".join(use.how for use in find_uses(kernel)) or "the kernel holds it"
        raise HeldError("held", name=name, uses=holders) from error


def kernel_name() -> str:
    """Of the mapping that carries the file system; empty where there is none."""
    path = Path(PATH)
    return path.resolve().name if path.exists() else ""


def suspended() -> bool:
    """Whether the mapping that carries the file system is suspended."""
    name = kernel_name()
    return bool(name) and system_text.read(BLOCK / name / "dm" / "suspended").strip() == "1"


def revive() -> None:
    """Let a suspended mapping answer with errors, else whoever has it mounted waits for ever.

    What a locked range refuses are errors already; a crypt target without its key does not resume.
    """
    if not suspended():
        return
    try:
        run(["dmsetup", "resume", MAPPING])
    except CommandError:
        run(["dmsetup", "wipe_table", "--noflush", "--nolockfs", MAPPING])


def uuid(kernel: str) -> str:
    """Return the mapping's UUID, which shows who made it; empty where it has no table."""
    return system_text.read(BLOCK / kernel / "dm" / "uuid").strip() if kernel else ""


def formatted() -> bool:
    """Whether the mapping carries a file system (or anything else that has a signature)."""
    if not Path(PATH).exists():
        return False
    return bool(run(["blkid", "-p", "-o", "export", PATH], ok=(0, 2, 8)).out.strip())


def mounts() -> list[Path]:
    """Where our mappings are mounted, the last mount first; nothing else is looked at."""
    kernel_names = {f"/dev/mapper/{name}": kernel for name, kernel in devices().items() if kernel}
    numbers = set(map(number_of, kernel_names.values()))
    sources = {*kernel_names, *(f"/dev/{kernel}" for kernel in kernel_names.values())}
    # Btrfs has a device number of its own.
    ours = (m for m in all_mounts() if m.number in numbers or m.source in sources)
    return [Path(mount.where) for mount in ours][::-1]
