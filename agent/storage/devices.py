"""Block devices as the kernel reports them: names, sizes, serials, links (sysfs)."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from agent.storage import nvme
from agent.system.command import Progress, run
from contract import system_text
from contract.journal import boot_id
from contract.names import sentence
from contract.plan import file_serial

BLOCK = Path("/sys/class/block")
PCI_DRIVERS = Path("/sys/bus/pci/drivers")
LUKS_LOCKS = Path("/run/cryptsetup")
# Drivers that hand a whole controller to a program: a virtual machine, SPDK, DPDK.
USER_SPACE = ("vfio-pci", "uio_pci_generic", "igb_uio")
SECTOR_BYTES = 512  # the unit of sysfs and device-mapper, whatever the disk's block size
EDGE_BYTES = 2**20
_GET_DISKSEQ = 0x80081280  # BLKGETDISKSEQ, linux/fs.h
_LOCK_S = _NODE_S = 10.0
_held: dict[str, int] = {}


@contextmanager
def opened(path: str | os.PathLike[str], flags: int) -> Iterator[int]:
    """Open a path and close its descriptor at the end; raises OSError."""
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def kernel_name(path: str | os.PathLike[str]) -> str | None:
    """Return the kernel's name of the block device behind a path; None if it is not one."""
    try:
        info = os.stat(path)  # noqa: PTH116 - takes any path-like
    except OSError:
        return None
    if not stat.S_ISBLK(info.st_mode):
        return None
    return name_of(info.st_rdev)


def size_bytes(name: str) -> int:
    """Return the size of a device by its kernel name."""
    return int(system_text.read(BLOCK / name / "size")) * SECTOR_BYTES


def block_bytes(name: str) -> int:
    """Return the logical block size of a whole disk or one of its partitions."""
    return int(system_text.read(queue(name) / "logical_block_size"))


def queue(name: str) -> Path:
    """Return the folder of a device's queue, which is its disk's for a partition."""
    device = (BLOCK / name).resolve()
    return (device if (device / "queue").exists() else device.parent) / "queue"


def unsuited(name: str) -> str:
    """Return why the disk cannot take every write alike; empty if it can."""
    if system_text.read(BLOCK / name / "ro").strip() == "1":
        return "is write-protected (its switch, its settings, `blockdev --setro`)"
    zones = system_text.read_line_or_empty(queue(name) / "zoned")
    if zones not in ("", "none"):
        return f"is {zones}: its zones are written in order only"
    shift = system_text.read_line_or_empty(BLOCK / name / "alignment_offset")
    return "" if shift in ("", "0") else f"has physical blocks that are shifted by {shift} bytes"


def is_whole_disk(name: str) -> bool:
    """Return whether a device is hardware, or a file's loop device.

    Partitions, mappings, RAIDs, caches and disks in memory have no hardware directly below them.
    """
    return (BLOCK / name / "device").exists() or loop_file(name) is not None


def partitions(name: str) -> list[str]:
    """Return the kernel names of a disk's partitions, by their number."""
    numbered = [
        (int(system_text.read(entry / "partition")), entry.name)
        for entry in (BLOCK / name).resolve().iterdir()
        if (entry / "partition").exists()
    ]
    return [partition for _, partition in sorted(numbered)]


def partition_start_bytes(name: str) -> int:
    """Return where a partition begins on its disk."""
    return int(system_text.read(BLOCK / name / "start")) * SECTOR_BYTES


def settle() -> None:
    """Wait until udev has processed all changes.

    Closing a disk after writing makes udev read the table again, and meanwhile the partitions are
    gone. A time-out is ignored: what is missing then will be reported later. While a disk is held,
    udev's events wait for us, so we do not wait for them.
    """
    if _held:
        return
    run(["udevadm", "settle", "--timeout=30"], ok=(0, 1))


@contextmanager
def hold(name: str) -> Iterator[int]:
    """Hold a disk, so that udev leaves it alone and its name stays the same.

    The lock is that of systemd's "Locking Block Device Access". Another holder has the disk open
    and is found as its user, so after some seconds the block runs without the lock. As long as a
    descriptor is open, the kernel gives the disk's name and number to no other. Yields the number
    of the disk's appearance (0 without one). udev's events wait meanwhile: do not wait for them in
    the block. Raises OSError.
    """
    if name in _held:
        yield _held[name]
        return
    fd = os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _LOCK_S
        while time.monotonic() < deadline:
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.02)
        _held[name] = _diskseq_of(fd)
        yield _held[name]
    finally:
        _held.pop(name, None)
        os.close(fd)


def _diskseq_of(fd: int) -> int:
    buffer = bytearray(8)
    fcntl.ioctl(fd, _GET_DISKSEQ, buffer, True)
    return int(struct.unpack("=Q", buffer)[0])


def wait_for_partition(disk: str) -> str | None:
    """Return the kernel name of the disk's only partition once its node exists.

    None after a time.
    """
    deadline = time.monotonic() + _NODE_S
    while time.monotonic() < deadline:
        names = partitions(disk)
        if len(names) == 1 and kernel_name(f"/dev/{names[0]}") == names[0]:
            return names[0]
        time.sleep(0.1)
    return None


def serial(name: str) -> str:
    """Return the disk's serial number as the drive reports it; empty if unknown.

    It can be typed: bytes that are not text appear as escapes, such as backslash and xff. A loop
    device has that of its file's present path.
    """
    if file := loop_file(name):
        return file_serial(file)
    for place in ("device/serial", "serial"):
        if number := system_text.read_line_or_empty(BLOCK / name / place).strip(" \t\n\0"):
            return sentence(number)
    # Its status is 32 for a disk of no size, as a card reader without a card.
    return sentence(run(["lsblk", "-dno", "SERIAL", f"/dev/{name}"], ok=(0, 32)).out.strip())


def loop_file(name: str) -> str | None:
    """Return the present path of a loop device's file, as the kernel has it; None without one."""
    return system_text.read_line_or_empty(BLOCK / name / "loop" / "backing_file") or None


def same_identity(name: str) -> list[str]:
    """Return other disks of the same size and serial: a second path to this one, or a clone."""
    own_bytes, own_serial = size_bytes(name), serial(name)
    return [
        disk
        for disk in sorted(entry.name for entry in BLOCK.iterdir())
        if disk != name
        and (BLOCK / disk / "device").exists()
        and not _hidden(disk)
        and size_bytes(disk) == own_bytes
        and serial(disk) == own_serial != ""
    ]


def sibling_namespaces(name: str) -> list[str]:
    """Return other namespaces of the NVM subsystem that a disk is one of; empty for other disks.

    They share one security subsystem: owning, locking or reverting one affects all. Namespaces that
    the kernel does not show as disks are included.
    """
    namespace = _namespace(name)
    if namespace is None:
        return []
    shown = {
        sibling[1]: f"/dev/{disk}"
        for disk in sorted(entry.name for entry in BLOCK.iterdir())
        if not _hidden(disk) and (sibling := _namespace(disk)) and sibling[0] == namespace[0]
    }
    try:
        identifiers = {*shown, *nvme.namespaces(f"/dev/{name}")} - {namespace[1]}
    except OSError as error:
        return [f"namespaces that its controller does not list ({error.strerror})"]
    return [shown.get(nsid, f"its namespace {nsid}") for nsid in sorted(identifiers)]


def _namespace(name: str) -> tuple[str, int] | None:
    """Return NVM subsystem and namespace identifier of a whole disk; None without them."""
    try:
        subsystem = system_text.read(BLOCK / name / "device" / "subsysnqn").strip()
        return subsystem, int(system_text.read(BLOCK / name / "nsid"))
    except OSError:
        return None


def _hidden(name: str) -> bool:
    """Whether this is one path of a multipath disk that the kernel already shows as one."""
    attribute = BLOCK / name / "hidden"
    return attribute.exists() and system_text.read(attribute).strip() == "1"


def controllers(device: Path) -> list[Path]:
    """Return the controllers of a disk by its `device` folder in sysfs.

    This is the folder itself, or with native NVMe multipath each of the subsystem's controllers.
    """
    paths = sorted(path for path in device.glob("nvme*") if (path / "transport").exists())
    return paths or [device]


def diskseq(name: str) -> int:
    """Return the kernel's number of this appearance of a disk, unique until the next boot."""
    return int(system_text.read(BLOCK / name / "diskseq"))


def writes(name: str) -> str:
    """Return the kernel's counts of sectors written and discarded on a disk, as text.

    See Documentation/block/stat.rst. The text changes with a restart or another appearance of the
    disk.
    """
    counts = system_text.read(BLOCK / name / "stat").split()
    return " ".join([boot_id(), str(diskseq(name)), *counts[4:7], *counts[11:14]])


def progress(path: str) -> Progress:
    """Return the kernel's counts of a device as a sign of progress, by its path."""
    name = Path(path).resolve().name

    def counts() -> str:
        numbers = system_text.read_line_or_empty(BLOCK / name / "stat").split()
        # Completed reads, writes, discards and flushes: not the time that one is waited for.
        return " ".join(numbers[i] for i in (0, 4, 11, 15) if i < len(numbers))

    return Progress(counts, size_bytes(name) if (BLOCK / name / "size").exists() else 0)


def ata_security_off(name: str) -> bool:
    """Whether libata drives the disk and keeps Opal's commands from it (its default)."""
    if not any(part.startswith("ata") for part in (BLOCK / name).resolve().parts):
        return False
    allowed = Path("/sys/module/libata/parameters/allow_tpm")
    return allowed.exists() and system_text.read(allowed).strip() in ("0", "N")


def read(fd: int, offset: int, length: int) -> bytes:
    """Read `length` bytes of a disk that was opened with O_DIRECT; raises OSError."""
    with mmap.mmap(-1, length) as buffer:  # page-aligned, as O_DIRECT wants it
        count = 0
        while count < length:
            with memoryview(buffer)[count:] as remainder:
                got = os.preadv(fd, [remainder], offset + count)
            if not got:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            count += got
        return buffer[:]


def zero(path: str, seq: int, extents: Sequence[tuple[int, int]]) -> None:
    """Write zeros over these (offset, length) in this order, in bytes, down to the medium.

    The disk is opened exclusively and must be the appearance with the number `seq`, so that it
    cannot be another disk. Raises OSError.
    """
    with opened(path, os.O_RDWR | os.O_EXCL) as fd:
        if _diskseq_of(fd) != seq:
            raise OSError(errno.ESTALE, "another disk stands there now")
        for offset, length in extents:
            count = 0
            while count < length:
                count += os.pwrite(fd, bytes(min(EDGE_BYTES, length - count)), offset + count)
            os.fsync(fd)


def dm_name(name: str) -> str:
    """Return the device-mapper name of a device; empty if it is no mapping."""
    return system_text.read_line_or_empty(BLOCK / name / "dm" / "name")


def given_away() -> list[str]:
    """Return storage controllers that a program may drive, not the kernel: address and driver."""
    return [
        f"{function.name} ({driver})"
        for driver in USER_SPACE
        for function in sorted((PCI_DRIVERS / driver).glob("*:*:*.*"))
        if system_text.read(function / "class").startswith("0x01")
    ]


def command_name(process: Path) -> str:
    """Return `name[pid]` of a process by its folder in /proc, for people; raises OSError."""
    return f"{sentence(system_text.read(process / 'comm').strip())}[{process.name}]"


def name_of(number: int) -> str | None:
    """Return the kernel's name of the block device with this number; None if it does not exist."""
    link = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return link.resolve().name if link.exists() else None


def wait_for_luks_lock(path: str) -> str:
    """Wait until no program holds cryptsetup's lock of a device; name who holds it too long.

    cryptsetup itself would wait for ever.
    """
    number = Path(path).stat().st_rdev
    file = LUKS_LOCKS / f"L_{os.major(number)}:{os.minor(number)}"
    deadline = time.monotonic() + _LOCK_S
    while file.exists():
        # Whoever had it may have removed it in this moment.
        with suppress(BlockingIOError, FileNotFoundError), opened(file, os.O_RDWR) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return ""
        if time.monotonic() > deadline:
            users = []
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if any(link.readlink() == file for link in (process / "fd").iterdir()):
                        users.append(command_name(process))
            return ", ".join(sorted(users)) or "a program"
        time.sleep(0.2)
    return ""
