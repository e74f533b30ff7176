"""Disks that are files behind a loop device, for a machine without a spare disk.

A file gets its name only when it is complete: allocated, written and marked as ours by its
partition table. So a file without the mark belongs to somebody else and is never attached.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from contextlib import suppress
from pathlib import Path

from agent.storage import backing, devices, layout
from agent.storage import facts as disk_facts
from agent.storage.devices import BLOCK, EDGE_BYTES
from agent.system.command import CommandError, run
from contract import system_text
from contract.errors import AgentError
from contract.plan import DATA_OFFSET_BYTES, Disk, Extent
from contract.problem import Problem, wordings_of

DELETED = " (deleted)"  # ends the kernel's path of a file that has no name any more
# Room that stays free on the host's file system.
SPARE_BYTES = 512 * 2**20
_GET_FLAGS, _SET_FLAGS, _NO_COPY_ON_WRITE = 0x80086601, 0x40086602, 0x00800000  # linux/fs.h


class FileDiskError(AgentError):
    """The file of a disk cannot be created, attached or removed."""

    WORDINGS = wordings_of("agent/storage", "FileDiskError")


def find_loop(disk: Disk) -> str | None:
    """Return the kernel name of the loop device of a disk's file; None without one.

    Raises FileDiskError if there are several.
    """
    names = sorted(path.parent.name for path in BLOCK.glob("loop*/loop"))
    loops = [name for name in names if devices.loop_file(name) == disk.file]
    if len(loops) > 1:
        raise _error("attached-twice", disk, loops=", ".join(loops))
    return loops[0] if loops else None


def _error(code: str, disk: Disk, **facts: str | int) -> FileDiskError:
    return FileDiskError(code, role=disk.role, file=disk.file or "", **facts)


def refusals(disk: Disk, extent: Extent) -> list[Problem]:
    """Return why the file can be neither used nor created; empty if it can. Nothing is changed."""
    try:
        if not exists(disk):
            if reason := layout.extent_refusal(disk, extent):
                return [reason]
            _require_place(disk)
    except FileDiskError as error:
        return list(error.problems)
    return []


def exists(disk: Disk) -> bool:
    """Return whether the disk's file exists, is ours and has its size; raises FileDiskError."""
    size_bytes = _size_bytes(disk)
    if size_bytes not in (None, disk.size_bytes):
        raise _error("other-size", disk, found=size_bytes or 0, size_bytes=disk.size_bytes)
    return size_bytes is not None


def _size_bytes(disk: Disk) -> int | None:
    """Return the size of the disk file; None without one. Raises FileDiskError if not ours."""
    path = Path(disk.file or "")
    _require_real(disk, path.parent)
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _error("unreadable", disk, error=error.strerror or "") from error
    if not stat.S_ISREG(status.st_mode) or status.st_uid or status.st_nlink != 1:
        raise _error("foreign", disk)
    if not _is_marked(str(path), sector_bytes(path.parent), disk):
        raise _error("foreign", disk)
    return status.st_size


def _is_marked(path: str, sector: int, disk: Disk) -> bool:
    """Return whether a file or loop device has the partition table of this disk."""
    table = disk_facts.read_table(path, sector)
    return table is not None and table.id.lower() == disk_facts.disk_uuid(disk.serial)


def _require_real(disk: Disk, folder: Path) -> None:
    """Raise FileDiskError for a folder that is missing or a link, which the kernel resolves."""
    try:
        real = folder.resolve(strict=True)
    except OSError:
        raise _error("no-folder", disk, folder=str(folder)) from None
    if real != folder:
        raise _error("linked", disk, folder=str(folder), real=str(real))


def sector_bytes(folder: Path) -> int:
    """Return the sector size of a loop device on a file there, which direct I/O requires."""
    name = backing.device_of(folder)
    return max(devices.SECTOR_BYTES, devices.block_bytes(name)) if name else devices.SECTOR_BYTES


def _require_place(disk: Disk) -> None:
    """Raise FileDiskError if the folder cannot hold the file."""
    folder = Path(disk.file or "").parent
    _require_real(disk, folder)
    if (unfit := backing.unfit(folder)) is not None:
        raise _error("unfit", disk, folder=str(folder), type=unfit)
    free_bytes = backing.free_bytes(folder)
    if free_bytes < disk.size_bytes + SPARE_BYTES:
        needed_mib, free_mib = (disk.size_bytes + SPARE_BYTES) >> 20, free_bytes >> 20
        raise _error("no-room", disk, folder=str(folder), free_mib=free_mib, needed_mib=needed_mib)


def create(disk: Disk, extent: Extent) -> None:
    """Create the file: allocated, written once, with our mark; then give it its name.

    Until then it has none, so that an interrupted creation leaves nothing. Raises FileDiskError if
    it does not fit or something with that name exists, CommandError.
    """
    _require_place(disk)
    path = Path(disk.file or "")
    try:
        with devices.opened(path.parent, os.O_TMPFILE | os.O_RDWR) as fd:
            os.fchmod(fd, 0o600)
            _without_copy_on_write(fd)
            os.posix_fallocate(fd, 0, disk.size_bytes)
            for _ in range(0, disk.size_bytes, EDGE_BYTES):  # else the first runs would allocate
                os.write(fd, bytes(EDGE_BYTES))
            unit = ["--sector-size", str(sector_bytes(path.parent))]
            anonymous = f"/proc/{os.getpid()}/fd/{fd}"
            run(["sfdisk", "--quiet", *unit, anonymous], stdin=layout.script(disk, extent).encode())
            os.fsync(fd)
            # Only with a folder does Python call linkat(2), which follows that link.
            os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
        with devices.opened(path.parent, os.O_RDONLY) as fd:
            os.fsync(fd)
    except OSError as error:
        code = "foreign" if error.errno == errno.EEXIST else "not-created"
        raise _error(code, disk, error=error.strerror or "") from error


def _without_copy_on_write(fd: int) -> None:
    """Keep btrfs from moving and compressing the file's blocks; other file systems refuse."""
    flags = bytearray(8)
    with suppress(OSError):
        fcntl.ioctl(fd, _GET_FLAGS, flags, True)
        (value,) = struct.unpack("=Q", flags)
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("=Q", value | _NO_COPY_ON_WRITE))


def attach(disk: Disk) -> bool:
    """Attach the file to a loop device with direct I/O, by the link `disk.by_id`.

    Returns whether it was not attached before. Raises FileDiskError, CommandError.
    """
    name = find_loop(disk)
    is_new = name is None
    if name is None:
        if not exists(disk):
            raise _error("missing", disk)
        folder = Path(disk.file or "").parent
        argv = ["losetup", "--find", "--show", "--partscan", "--direct-io=on"]
        argv += ["--sector-size", str(sector_bytes(folder)), "--", disk.file or ""]
        try:
            name = Path(run(argv).out.strip()).name
        except CommandError as error:
            if loop := find_loop(disk):  # attached, but without direct I/O
                _detach(loop)
            raise _error("not-attached", disk, error=str(error)) from error
    if system_text.read(BLOCK / name / "loop" / "dio").strip() != "1":
        if is_new:
            _detach(name)
        raise _error("no-direct-io", disk)
    # A discard would make holes in the file, which later writes would have to allocate again.
    (BLOCK / name / "queue" / "discard_max_bytes").write_text("0")
    path = Path(disk.by_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(f"/dev/{name}")
    devices.settle()
    return is_new


def remove(disk: Disk) -> bool:
    """Wipe the header with its keys, detach the loop device and remove the file, if it is ours.

    It is unmounted and unmapped. Returns whether there was something to remove. A file that
    somebody else put in its place stays. Raises FileDiskError, CommandError.
    """
    link = Path(disk.by_id)
    # The kernel appends to the path of a deleted file, so that only our link leads to its loop.
    names = {name for name in (find_loop(disk), _linked_loop(disk)) if name}
    for name in names:
        with suppress(OSError):  # the host's disk may be full or gone
            header = layout.START_BYTES, DATA_OFFSET_BYTES
            devices.zero(f"/dev/{name}", devices.diskseq(name), [header])
        _detach(name)
    is_linked = link.is_symlink()
    link.unlink(missing_ok=True)
    with suppress(OSError):  # other disks have links there
        link.parent.rmdir()
    with suppress(FileDiskError):
        if _size_bytes(disk) is not None:
            Path(disk.file or "").unlink()
            return True
    return bool(names) or is_linked


def _linked_loop(disk: Disk) -> str | None:
    """Return the loop device of our link, if it has the disk's file or had it under its name.

    A file whose folder was unmounted has another path; its mark is still ours.
    """
    name = devices.kernel_name(disk.by_id)
    file = devices.loop_file(name) if name else None
    if name is None or file is None:
        return None
    is_named = file in (disk.file, f"{disk.file}{DELETED}")
    is_ours = is_named or _is_marked(f"/dev/{name}", devices.block_bytes(name), disk)
    return name if is_ours else None


def _detach(name: str) -> None:
    run(["losetup", "--detach", f"/dev/{name}"])
    devices.settle()
