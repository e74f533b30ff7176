"""What the kernel says about block devices: names, sizes, serials, and who uses them (sysfs)."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agent.command import run
from agent.storage import nvme

BLOCK = Path("/sys/class/block")
SECTOR_BYTES = 512  # the unit of sysfs and device-mapper, whatever the disk's block size
EDGE_BYTES = 2**20
_GET_DISKSEQ = 0x80081280  # BLKGETDISKSEQ, linux/fs.h
_LOCK_S = 10.0
_held: dict[str, int] = {}


@dataclass(frozen=True)
class Use:
    """Why a device is busy: `device` is a kernel name, `how` reads on from "… is"."""

    device: str
    how: str


@contextmanager
def opened(path: str | os.PathLike[str], flags: int) -> Iterator[int]:
    """A descriptor of what is opened so, closed at the end; raises OSError."""
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def kernel_name(path: str | os.PathLike[str]) -> str | None:
    """The kernel's name of the block device behind a path; None if there is none."""
    try:
        info = os.stat(path)  # noqa: PTH116 - takes any path-like
    except OSError:
        return None
    if not stat.S_ISBLK(info.st_mode):
        return None
    return _name_of(os.major(info.st_rdev), os.minor(info.st_rdev))


def size_bytes(name: str) -> int:
    """Size of a device; `name` is the kernel's."""
    return int((BLOCK / name / "size").read_text()) * SECTOR_BYTES


def block_bytes(name: str) -> int:
    """Logical block size of a whole disk or one of its partitions."""
    device = (BLOCK / name).resolve()
    queue = (device if (device / "queue").exists() else device.parent) / "queue"
    return int((queue / "logical_block_size").read_text())


def read_only(name: str) -> bool:
    """Whether the kernel lets nobody write it, for a switch, the drive or `blockdev --setro`."""
    return (BLOCK / name / "ro").read_text().strip() == "1"


def is_whole_disk(name: str) -> bool:
    """Neither a partition nor a mapping on other devices."""
    return not (BLOCK / name / "partition").exists() and not (BLOCK / name / "dm").exists()


def partitions(name: str) -> list[str]:
    """Kernel names of the partitions of a disk, by their number."""
    found = [
        (int((entry / "partition").read_text()), entry.name)
        for entry in (BLOCK / name).resolve().iterdir()
        if (entry / "partition").exists()
    ]
    return [partition for _, partition in sorted(found)]


def partition_start_bytes(name: str) -> int:
    """Where a partition begins on its disk."""
    return int((BLOCK / name / "start").read_text()) * SECTOR_BYTES


def settle() -> None:
    """Wait until udev is done with what was changed.

    Whoever closes a disk after writing makes it read the table once more, and meanwhile the
    partitions are gone. A time-out is passed over: what is missing then will be missed. While a
    disk is held, its events wait for us, so that we do not wait for them.
    """
    if _held:
        return
    run(["udevadm", "settle", "--timeout=30"], ok=(0, 1))


@contextmanager
def held(name: str) -> Iterator[int]:
    """Hold a disk: no udev worker looks into it or its partitions, and its name stays its own.

    The lock is that of systemd's "Locking Block Device Access". Who else holds it has the disk open
    and is seen as its user, so that after some seconds one continues without. As long as a
    descriptor is open, the kernel gives the disk's name and number to no other. Gives the number of
    the disk's appearance (0 where it has none). udev's events wait meanwhile: do not wait for them
    in here. Raises OSError.
    """
    if name in _held:
        yield _held[name]
        return
    fd = os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _LOCK_S
        while not _flocked(fd) and time.monotonic() < deadline:
            time.sleep(0.02)
        _held[name] = _diskseq_of(fd)
        yield _held[name]
    finally:
        _held.pop(name, None)
        os.close(fd)


def _flocked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _diskseq_of(fd: int) -> int:
    buffer = bytearray(8)
    fcntl.ioctl(fd, _GET_DISKSEQ, buffer, True)
    return int(struct.unpack("=Q", buffer)[0])


def wait_for_partition(disk: str, timeout_s: float = 10) -> str | None:
    """The kernel name of the disk's only partition once its node is there; None if it never is."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        names = partitions(disk)
        if len(names) == 1 and kernel_name(f"/dev/{names[0]}") == names[0]:
            return names[0]
        time.sleep(0.1)
    return None


def serial(name: str) -> str:
    """The disk's serial number as the drive reports it; empty if nobody knows one."""
    for place in ("device/serial", "serial"):
        try:
            found = (BLOCK / name / place).read_text().strip()
        except OSError:
            continue
        if found:
            return found
    return run(["lsblk", "-dno", "SERIAL", f"/dev/{name}"]).out.strip()


def same_identity(name: str, serial_of: Callable[[str], str] = serial) -> list[str]:
    """Other disks of the same size and serial: a second path to this one, or a clone of it."""
    own_bytes, own_serial = size_bytes(name), serial_of(name)
    return [
        other
        for other in sorted(entry.name for entry in BLOCK.iterdir())
        if other != name
        and (BLOCK / other / "device").exists()  # neither a partition, a mapping nor a loop device
        and not _hidden(other)
        and size_bytes(other) == own_bytes
        and serial_of(other) == own_serial != ""
    ]


def beside(name: str) -> list[str]:
    """Other namespaces of the NVM subsystem that a disk is one of; empty for any other disk.

    Their security subsystem is one and the same: who owns, locks or reverts one, does it to all.
    Also named are those that the kernel shows no disk of.
    """
    own = _namespace(name)
    if own is None:
        return []
    shown = {
        found[1]: f"/dev/{other}"
        for other in sorted(entry.name for entry in BLOCK.iterdir())
        if not _hidden(other) and (found := _namespace(other)) and found[0] == own[0]
    }
    try:
        known = {*shown, *nvme.namespaces(f"/dev/{name}")} - {own[1]}
    except OSError as error:
        return [f"namespaces that its controller does not list ({error.strerror})"]
    return [shown.get(nsid, f"its namespace {nsid}") for nsid in sorted(known)]


def _namespace(name: str) -> tuple[str, int] | None:
    """NVM subsystem and namespace identifier of a whole disk; None where it has none."""
    try:
        subsystem = (BLOCK / name / "device" / "subsysnqn").read_text().strip()
        return subsystem, int((BLOCK / name / "nsid").read_text())
    except OSError:
        return None


def _hidden(name: str) -> bool:
    """Whether this is one path of a multipath disk that the kernel already shows as one."""
    attribute = BLOCK / name / "hidden"
    return attribute.exists() and attribute.read_text().strip() == "1"


def controllers(device: Path) -> list[Path]:
    """What leads to a disk whose `device` in sysfs this is: itself, or with native NVMe multipath,
    where the disk hangs on its subsystem, each of the subsystem's controllers."""
    found = sorted(path for path in device.glob("nvme*") if (path / "transport").exists())
    return found or [device]


def diskseq(name: str) -> int:
    """The kernel's number of this very appearance of a disk; it is never given again until boot."""
    return int((BLOCK / name / "diskseq").read_text())


def ata_security_off(name: str) -> bool:
    """Whether libata drives the disk and keeps Opal's commands from it (its default)."""
    if not any(part.startswith("ata") for part in (BLOCK / name).resolve().parts):
        return False
    allowed = Path("/sys/module/libata/parameters/allow_tpm")
    return allowed.exists() and allowed.read_text().strip() in ("0", "N")


def busy(path: str) -> bool:
    """Whether someone has the disk or a part of it for himself: mounts (in any namespace), ZFS, …

    The kernel refuses a second exclusive open. Tools hold a disk for moments: asked three times.
    """
    for _ in range(3):
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        except OSError as error:
            if error.errno != errno.EBUSY:
                return False  # reading it will say what is wrong
        else:
            return False
        time.sleep(0.1)
    return True


def read_edges(path: str, size: int) -> tuple[bytes, bytes]:
    """First and last MiB of a disk of `size` bytes, past the page cache; raises OSError."""
    length = min(EDGE_BYTES, size)
    with opened(path, os.O_RDONLY | os.O_DIRECT) as fd:
        return read(fd, 0, length), read(fd, size - length, length)


def read(fd: int, offset: int, length: int) -> bytes:
    """So many bytes of a disk that was opened with O_DIRECT; raises OSError."""
    with mmap.mmap(-1, length) as buffer:  # page-aligned, as O_DIRECT wants it
        done = 0
        while done < length:
            with memoryview(buffer)[done:] as rest:
                got = os.preadv(fd, [rest], offset + done)
            if not got:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            done += got
        return buffer[:]


def zero(path: str, seq: int, extents: Sequence[tuple[int, int]]) -> None:
    """Zeros over these (offset, length) in this order, lengths in bytes, down to the medium.

    The disk is opened exclusively and must be the appearance with the number `seq`, so that nobody
    can have taken it in between. Raises OSError.
    """
    with opened(path, os.O_RDWR | os.O_EXCL) as fd:
        if _diskseq_of(fd) != seq:
            raise OSError(errno.ESTALE, "another disk stands there now")
        for offset, length in extents:
            done = 0
            while done < length:
                done += os.pwrite(fd, bytes(min(EDGE_BYTES, length - done)), offset + done)
            os.fsync(fd)


def dm_name(name: str) -> str | None:
    """The device-mapper name of a device; None if it is no mapping."""
    try:
        return (BLOCK / name / "dm" / "name").read_text().strip()
    except OSError:
        return None


def uses(disk: str) -> list[Use]:
    """Mounts, swap and holders of a disk, its partitions and all that stands on them."""
    found = [
        Use(name, "carries the root file system" if where == "/" else f"mounted on {where}")
        for name, where in mounted()
        if disk in chain(name)
    ]
    found += [Use(name, "used as swap") for name in _swaps() if disk in chain(name)]
    for name in (disk, *partitions(disk)):
        holders = BLOCK / name / "holders"
        for holder in sorted(holders.iterdir()) if holders.exists() else ():
            called = dm_name(holder.name) or holder.name
            found.append(Use(name, f"held by {called}"))
        found += [Use(name, f"held by {loop}") for loop in _loops_over(name)]
    return found + _named_in_tables(disk) + openers(disk)


def _named_in_tables(disk: str) -> list[Use]:
    """What is to be mounted or opened from a disk later, blank as it may be until then."""
    names = {disk, *partitions(disk)}
    found = []
    for table, column in ((Path("/etc/fstab"), 0), (Path("/etc/crypttab"), 1)):
        with suppress(OSError):
            for line in table.read_text(errors="replace").splitlines():
                fields = line.partition("#")[0].split()
                key, _, value = fields[column].partition("=") if len(fields) > 1 else ("", "", "")
                path = f"/dev/disk/by-{key.lower()}/{value.strip(chr(34))}" if value else key
                if path.startswith("/dev/") and (name := kernel_name(_plain(path))) in names:
                    found.append(Use(str(name), f"named in {table}"))
    return found


def openers(disk: str) -> list[Use]:
    """Programs that have the disk or a part of it open, exclusively or not, as virtual machines and
    databases have theirs.

    Tools look at a disk for moments, and who counts is seen three times; udev, which may look for
    longer on a busy machine, is kept away by `held`.
    """
    names = [name for name in (disk, *partitions(disk)) if kernel_name(f"/dev/{name}")]
    numbers = {Path("/dev", name).stat().st_rdev: name for name in names}
    seen: set[tuple[str, str]] = set()
    for look in range(3):
        now = set(_open_in(numbers))
        seen = seen & now if look else now
        if not seen:
            break
        time.sleep(0.1)
    return [Use(name, how) for name, how in sorted(seen)]


def _open_in(numbers: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """(device, how) for every process but this one that has one of these open or in memory."""
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            descriptors = list((process / "fd").iterdir())
            comm = (process / "comm").read_text().strip()
        except OSError:
            continue  # it ended while we looked
        who = f"{comm}[{process.name}]"
        for descriptor in descriptors:
            with suppress(OSError):
                found = descriptor.stat()
                if stat.S_ISBLK(found.st_mode) and found.st_rdev in numbers:
                    yield numbers[found.st_rdev], f"open in {who}"
        with suppress(OSError):
            lines = (process / "maps").read_text(errors="replace").splitlines()
            for path in {_plain(line[line.index("/dev/") :]) for line in lines if "/dev/" in line}:
                if (name := kernel_name(path)) in numbers.values():
                    yield str(name), f"mapped into {who}"


def holder_elsewhere(disk: str) -> str:
    """Why a disk is busy that this namespace shows no use of, in the words of `Use.how`."""
    wanted = {(BLOCK / name / "dev").read_text().strip() for name in (disk, *partitions(disk))}
    for process in sorted(Path("/proc").glob("[0-9]*")):
        try:
            lines = (process / "mountinfo").read_text().splitlines()
            name = (process / "comm").read_text().strip()
        except OSError:
            continue  # it ended while we looked
        for fields in (line.split() for line in lines):
            if fields[2] in wanted:
                return f"mounted on {_plain(fields[4])} for {name}[{process.name}] alone"
    return "held exclusively by a program, as ZFS does"


def _loops_over(name: str) -> list[str]:
    """Loop devices set up on a device: the kernel does not list them as its holders."""
    files = sorted(BLOCK.glob("loop*/loop/backing_file"))
    return [file.parents[1].name for file in files if kernel_name(file.read_text().strip()) == name]


def _name_of(major: int, minor: int) -> str | None:
    link = Path(f"/sys/dev/block/{major}:{minor}")
    return link.resolve().name if link.exists() else None


def chain(name: str) -> set[str]:
    """The device and all devices below it, down to whole disks."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in found or not (BLOCK / current).exists():
            continue
        found.add(current)
        real = (BLOCK / current).resolve()
        if (real / "partition").exists():
            waiting.append(real.parent.name)
        if (real / "slaves").exists():
            waiting += [entry.name for entry in (real / "slaves").iterdir()]
    return found


def mounted() -> Iterator[tuple[str, str]]:
    """Kernel name and mount point of everything mounted from a block device."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        major, minor = (int(number) for number in fields[2].split(":"))
        # Some file systems (btrfs, zfs) have a device number of their own: ask their source.
        name = _name_of(major, minor) or kernel_name(_plain(right.split()[1]))
        if name:
            yield name, _plain(fields[4])


def _swaps() -> Iterator[str]:
    for line in Path("/proc/swaps").read_text().splitlines()[1:]:
        name = kernel_name(_plain(line.split()[0]))
        if name:
            yield name


def _plain(text: str) -> str:
    """Undo the kernel's octal escapes of blanks in paths."""
    for escaped, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escaped, char)
    return text
