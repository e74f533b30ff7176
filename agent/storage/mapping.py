"""Our device-mapper devices: their tables in the terms of the plan, and their removal."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from agent.storage.base import Layer, Segment
from agent.storage.devices import (
    BLOCK,
    SECTOR_BYTES,
    command_name,
    dm_name,
    is_whole_disk,
    opened,
    settle,
)
from agent.storage.guard import MAPPING
from agent.storage.uses import find_uses, number_of, read_stack, swaps
from agent.storage.uses import mounts as all_mounts
from agent.system.command import CommandError, run
from contract import system_text
from contract.errors import AgentError
from contract.names import printable
from contract.problem import wordings_of

_FITHAW = 0xC0045878  # linux/fs.h
ENCRYPTING = ("crypt", "inlinecrypt")  # targets whose tables have a key after the cipher


class TableError(AgentError):
    """A table cannot be read."""


class HeldError(AgentError):
    """A mapping cannot be removed."""

    WORDINGS = wordings_of("agent/storage", "HeldError")


def tables(mappings: Iterable[str]) -> dict[str, list[str]]:
    """Return the table lines of these mappings, by name.

    dmsetup shows dm-crypt's keys as zeros, but not dm-inlinecrypt's.
    """
    lines: dict[str, list[str]] = {name: [] for name in mappings}
    for line in run(["dmsetup", "table"]).out.splitlines():
        name, _, table = line.partition(": ")
        if name in lines and table.strip():
            lines[name].append(table.strip())
    return lines


def layers(mappings: Mapping[str, str], lines: Mapping[str, list[str]]) -> list[Layer]:
    """Parse these mappings (name to kernel name) into layers; raises TableError."""
    stack = []
    for name, kernel in mappings.items():
        # "CRYPT-LUKS2-<its own>-<name>": the first two words name its maker.
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
            mode = (f"mode:{fields[6]}",)
            return Segment(length, target, fields[3], int(fields[4]), options=mode)
        if target not in ENCRYPTING:
            return Segment(length, target)
        if target == "inlinecrypt":
            del fields[5]  # the type of the key
        options = fields[9 : 9 + int(fields[8])] if len(fields) > 8 else []
        sizes = [option.partition(":")[2] for option in options if option.startswith("sector_size")]
        sector_size = int(sizes[0]) if sizes else SECTOR_BYTES
        other_options = tuple(sorted(o for o in options if not o.startswith("sector_size")))
        cipher = (fields[3], _key_bits(fields[4]), sector_size, int(fields[5]))
        return Segment(length, target, fields[6], int(fields[7]), *cipher, other_options)
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
# A mapping that is held, with its minor number: it answers with errors until it is let go.
ASIDE = "fde-dead-"
OURS = "FDE-TESTBED"  # the start of the UUID of mappings that we make ourselves
EXTERNAL = "FDE-EXTERNAL"  # the same, of those below and above another product's device
_NAMES = re.compile(rf"{MAPPING}(-container)?(-[0-9a-f]{{8}})?(_\d+|_dif)?")
# cryptsetup's way of closing an Opal mapping locks the range without its PIN.
_WIPE = ("dmsetup", "wipe_table", "--noflush", "--nolockfs")
_LOCKS_ON_CLOSING = "CRYPT-LUKS2-OPAL"


def is_ours(name: str) -> bool:
    """Whether a device-mapper name is one of ours: `fde-data`, a cascade's layer, a container."""
    return _NAMES.fullmatch(name) is not None


def devices() -> dict[str, str]:
    """Map our existing mappings to kernel names, which are empty for one without a table.

    device-mapper is asked, because sysfs does not show a mapping without a table.
    """
    return {
        name: kernel if (BLOCK / kernel).exists() else ""
        for name, kernel in _numbers().items()
        if is_ours(name)
    }


def _numbers() -> dict[str, str]:
    """Map all mappings of the machine to the kernel names of their numbers."""
    argv = ["dmsetup", "info", "-c", "--noheadings", "--separator", ":", "-o", "name,minor"]
    lines = [line.strip().rpartition(":") for line in run(argv).out.splitlines()]
    return {name: f"dm-{minor}" for name, _, minor in lines if name}


def list_foreign(disks: Collection[str]) -> list[str]:
    """List mappings with our names on other disks than these, which are not ours.

    `disks` are kernel names. Our mapping on a disk that was unplugged has no disk that the kernel
    still shows.
    """
    foreign = []
    for name, kernel in devices().items():
        if name == MAPPING and uuid(kernel).startswith(EXTERNAL):
            continue  # a product hides its device; its container is checked
        wholes = {device for device in read_stack().chain(kernel, disks) if is_whole_disk(device)}
        if wholes - set(disks):
            foreign.append(f"{name} on {', '.join(sorted(wholes - set(disks)))}")
    return foreign


def create(name: str, lines: list[str], uuid: str | None = None) -> None:
    """Make a mapping from the lines of its table, which appear on no command line."""
    table = "".join(f"{line}\n" for line in lines).encode()
    run(["dmsetup", "create", name, "--uuid", uuid or f"{OURS}-{name}"], stdin=table)


def close() -> None:
    """Remove all our mappings, unused ones first.

    Raises the first error, HeldError for one that is held, after all were tried.
    """
    remaining = devices()
    failed: AgentError | OSError | None = None
    while remaining:
        free = [
            name
            for name, kernel in remaining.items()
            if not (kernel and any((BLOCK / kernel).glob("holders/*")))
        ]
        for name in free or list(remaining):
            try:
                remove(name, remaining.pop(name))
            except (AgentError, OSError) as error:
                failed = failed or error
    if failed is not None:
        raise failed


def remove(name: str, kernel: str) -> None:
    """Remove a mapping; one that is held loses its key, and is set aside.

    From then on it answers with errors, under another name, and the kernel removes it once it is
    released. Raises HeldError. The holders are named only after the key is gone: finding them may
    fail.
    """
    opal = uuid(kernel).startswith(_LOCKS_ON_CLOSING)
    try:
        run(["cryptsetup", "close", name] if opal else ["dmsetup", "remove", "--retry", name])
    except CommandError as error:
        try:
            run([*_WIPE, name])
        except CommandError:
            if name in _numbers():
                raise
            return  # only the range's lock failed, which the stack sees to
        with suppress(CommandError):
            run(["dmsetup", "remove", name])
            return
        try:
            users = ", ".join(holders()) or "the kernel"
        finally:
            aside = kernel.replace("dm-", ASIDE)
            run(["dmsetup", "rename", name, aside])
            with suppress(CommandError):
                run(["dmsetup", "remove", "--deferred", aside])
        raise HeldError("held", name=name, uses=users) from error


@contextmanager
def free_name(final_name: str = MAPPING) -> Iterator[str]:
    """Yield a free name for a new mapping, and rename it to `final_name` at the end.

    Names are a part of UUIDs, and a mapping that was set aside still has its UUID.
    """
    if not any(name.startswith(ASIDE) for name in _numbers()):
        yield final_name
        return
    first = f"{final_name}-{os.urandom(4).hex()}"
    try:
        yield first
    finally:
        for name in _numbers():
            if name.startswith(first):
                run(["dmsetup", "rename", name, final_name + name.removeprefix(first)])
        settle()


def kernel_name() -> str:
    """Return the kernel name of the mapping that carries the file system; empty without one."""
    path = Path(PATH)
    return path.resolve().name if path.exists() else ""


def uuid(kernel: str) -> str:
    """Return the mapping's UUID, which shows who made it; empty without a table."""
    return system_text.read(BLOCK / kernel / "dm" / "uuid").strip() if kernel else ""


def formatted() -> bool:
    """Whether the mapping carries a file system (or anything else that has a signature)."""
    if not Path(PATH).exists():
        return False
    return bool(run(["blkid", "-p", "-o", "export", PATH], ok=(0, 2, 8)).out.strip())


def mounts() -> list[Path]:
    """Return where our mappings are mounted, the last mount first."""
    return _mounts("self", [kernel for kernel in devices().values() if kernel])


def _mounts(process: str, kernel_names: Collection[str]) -> list[Path]:
    numbers = set(map(number_of, kernel_names))
    sources = {f"/dev/{kernel}" for kernel in kernel_names}
    sources |= {f"/dev/mapper/{dm_name(kernel)}" for kernel in kernel_names}
    # Btrfs has a separate device number.
    listed = all_mounts(f"/proc/{process}")
    return [Path(m.where) for m in listed if m.number in numbers or m.source in sources][::-1]


def release() -> None:
    """Resume our mappings, thaw frozen file systems on them, and remove swap from them.

    A file system that a backup froze cannot be unmounted, and programs would end without their
    pages in swap. The service's sandbox forbids swapoff: there swap is treated as any other holder.
    """
    name = kernel_name()
    # A suspended mapping would let its users wait for ever. A locked range answers with errors
    # already; a crypt target without its key does not resume.
    if name and system_text.read(BLOCK / name / "dm" / "suspended").strip() == "1":
        try:
            run(["dmsetup", "resume", MAPPING])
        except CommandError:
            run([*_WIPE, MAPPING])
    kernel_names = [kernel for kernel in devices().values() if kernel]
    for process, folder in _mounted_anywhere(kernel_names):
        with suppress(OSError), opened(f"/proc/{process}/root{folder}", os.O_RDONLY) as fd:
            fcntl.ioctl(fd, _FITHAW, 0)
    folders = _mounts("self", kernel_names)
    for path in map(Path, swaps()):
        if any(map(path.is_relative_to, folders)) or path.resolve().name in kernel_names:
            with suppress(CommandError):
                run(["swapoff", str(path)])


def holders() -> list[str]:
    """Name the holders of our mappings.

    Processes and mounts of any mount namespace, loop devices, mappings.
    """
    kernel_names = [kernel for kernel in devices().values() if kernel]
    names = [use.how for kernel in kernel_names for use in find_uses(kernel)]
    names = [how for how in names if not how.startswith(("mounted on", f"held by {MAPPING}"))]
    shown = _mounts("self", kernel_names)
    for file in sorted(BLOCK.glob("loop*/loop/backing_file")):
        if _inside(system_text.read_line_or_empty(file).strip(), shown):
            names.append(file.parents[1].name)
    # As long as it is mounted here, most others have it from here and lose it with us.
    for process, folder in () if shown else _mounted_anywhere(kernel_names):
        with suppress(OSError):
            program = command_name(Path("/proc", process))
            names.append(f"mounted on {printable(str(folder))} for {program}")
    for thread in Path("/proc").glob("[0-9]*/task/[0-9]*"):  # its first one may have ended
        with suppress(OSError):
            folders = _mounts(str(thread.relative_to("/proc")), kernel_names)
            if folders and any(_inside(target, folders) for target in _links(thread)):
                names.append(command_name(thread.parents[1]))
    return list(dict.fromkeys(names))


def _mounted_anywhere(kernel_names: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield (process, folder) of each mount, one process for each mount namespace."""
    namespaces = set()
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with suppress(OSError):
            namespace = (process / "ns/mnt").readlink()
            if namespace not in namespaces:
                namespaces.add(namespace)
                yield from ((process.name, place) for place in _mounts(process.name, kernel_names))


def _links(thread: Path) -> Iterator[str]:
    """Yield the paths that a thread has open, is in, or has in its memory."""
    links = [thread / "cwd", thread / "root", thread / "exe"]
    with suppress(OSError):
        links += (thread / "fd").iterdir()
    for link in links:
        with suppress(OSError):
            yield str(link.readlink())
    with suppress(OSError):
        for line in system_text.read(thread / "maps").splitlines():
            yield line.split(maxsplit=5)[-1]


def _inside(path: str, folders: Collection[Path]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)
