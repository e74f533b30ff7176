"""What the kernel reports of block devices: names, sizes, serials, and who uses them (sysfs)."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agent.storage import nvme
from agent.system.command import Progress, run
from contract import system_text
from contract.journal import boot_id
from contract.names import printable, sentence

BLOCK = Path("/sys/class/block")
CONFIGFS = Path("/sys/kernel/config")
PCI_DRIVERS = Path("/sys/bus/pci/drivers")
SWAPS = Path("/proc/swaps")
# Where the kernel's own servers are told what they export: nvmet, LIO, a USB gadget.
_EXPORTS = (
    "nvmet/subsystems/*/namespaces/*/device_path",
    "nvmet/subsystems/*/passthru/device_path",
    "target/core/*/*/udev_path",
    "target/core/*/*/info",
    "usb_gadget/*/functions/mass_storage.*/lun.*/file",
)
# Drivers that hand a whole controller to a program: a virtual machine, SPDK, DPDK.
_USER_SPACE = ("vfio-pci", "uio_pci_generic", "igb_uio")
SECTOR_BYTES = 512  # the unit of sysfs and device-mapper, whatever the disk's block size
EDGE_BYTES = 2**20
_GET_DISKSEQ = 0x80081280  # BLKGETDISKSEQ, linux/fs.h
_LOCK_S = _NODE_S = 10.0
_held: dict[str, int] = {}


@dataclass(frozen=True)
class Use:
    """Why a device is busy: `device` is a kernel name, `how` reads on from "… is"."""

    device: str
    how: str


@contextmanager
def opened(path: str | os.PathLike[str], flags: int) -> Iterator[int]:
    """Open a path and close its descriptor at the end; raises OSError."""
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def kernel_name(path: str | os.PathLike[str]) -> str | None:
    """Return the kernel's name of the block device behind a path; None if there is none."""
    try:
        info = os.stat(path)  # noqa: PTH116 - takes any path-like
    except OSError:
        return None
    if not stat.S_ISBLK(info.st_mode):
        return None
    return _name_of(os.major(info.st_rdev), os.minor(info.st_rdev))


def size_bytes(name: str) -> int:
    """Size of a device; `name` is the kernel's."""
    return int(system_text.read(BLOCK / name / "size")) * SECTOR_BYTES


def block_bytes(name: str) -> int:
    """Logical block size of a whole disk or one of its partitions."""
    device = (BLOCK / name).resolve()
    queue = (device if (device / "queue").exists() else device.parent) / "queue"
    return int(system_text.read(queue / "logical_block_size"))


def read_only(name: str) -> bool:
    """Whether the kernel refuses writes to it, for a switch, the drive or `blockdev --setro`."""
    return system_text.read(BLOCK / name / "ro").strip() == "1"


def is_whole_disk(name: str) -> bool:
    """Neither a partition nor a mapping on other devices."""
    return not (BLOCK / name / "partition").exists() and not (BLOCK / name / "dm").exists()


def partitions(name: str) -> list[str]:
    """Kernel names of the partitions of a disk, by their number."""
    numbered = [
        (int(system_text.read(entry / "partition")), entry.name)
        for entry in (BLOCK / name).resolve().iterdir()
        if (entry / "partition").exists()
    ]
    return [partition for _, partition in sorted(numbered)]


def partition_start_bytes(name: str) -> int:
    """Where a partition begins on its disk."""
    return int(system_text.read(BLOCK / name / "start")) * SECTOR_BYTES


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
    """Return the kernel name of the disk's only partition once its node is there.

    None if it never is.
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

    It can be typed: bytes that are no text stand as their codes, xff behind a backslash.
    """
    for place in ("device/serial", "serial"):
        if number := system_text.read_line_or_empty(BLOCK / name / place).strip(" \t\n\0"):
            return sentence(number)
    return sentence(run(["lsblk", "-dno", "SERIAL", f"/dev/{name}"]).out.strip())


def same_identity(name: str) -> list[str]:
    """Other disks of the same size and serial: a second path to this one, or a clone of it."""
    own_bytes, own_serial = size_bytes(name), serial(name)
    return [
        other
        for other in sorted(entry.name for entry in BLOCK.iterdir())
        if other != name
        and (BLOCK / other / "device").exists()  # neither a partition, a mapping nor a loop device
        and not _hidden(other)
        and size_bytes(other) == own_bytes
        and serial(other) == own_serial != ""
    ]


def beside(name: str) -> list[str]:
    """Other namespaces of the NVM subsystem that a disk is one of; empty for any other disk.

    Their security subsystem is one and the same: who owns, locks or reverts one, does it to all.
    Also named are those that the kernel shows no disk of.
    """
    namespace = _namespace(name)
    if namespace is None:
        return []
    shown = {
        sibling[1]: f"/dev/{other}"
        for other in sorted(entry.name for entry in BLOCK.iterdir())
        if not _hidden(other) and (sibling := _namespace(other)) and sibling[0] == namespace[0]
    }
    try:
        known = {*shown, *nvme.namespaces(f"/dev/{name}")} - {namespace[1]}
    except OSError as error:
        return [f"namespaces that its controller does not list ({error.strerror})"]
    return [shown.get(nsid, f"its namespace {nsid}") for nsid in sorted(known)]


def _namespace(name: str) -> tuple[str, int] | None:
    """NVM subsystem and namespace identifier of a whole disk; None where it has none."""
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
    """Return what leads to a disk whose `device` in sysfs this is.

    Itself, or with native NVMe multipath, where the disk hangs on its subsystem, each of the
    subsystem's controllers.
    """
    paths = sorted(path for path in device.glob("nvme*") if (path / "transport").exists())
    return paths or [device]


def diskseq(name: str) -> int:
    """Return the kernel's number of this very appearance of a disk.

    It is never given again until boot.
    """
    return int(system_text.read(BLOCK / name / "diskseq"))


def writes(name: str) -> str:
    """Return the kernel's counts of what was written to and discarded on a disk.

    See Documentation/block/stat.rst. The text is another one after a restart or another appearance
    of the disk.
    """
    counts = system_text.read(BLOCK / name / "stat").split()
    return " ".join([boot_id(), str(diskseq(name)), *counts[4:7], *counts[11:14]])


def progress(path: str) -> Progress:
    """Return what the kernel counts of a device, by its path, as a program works on it."""
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


def busy(path: str) -> bool:
    """Whether someone has the disk or a part of it for himself: mounts (in any namespace), ZFS, ….

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

    The disk is opened exclusively and must be the appearance with the number `seq`, so that no
    other program can have taken it in between. Raises OSError.
    """
    with opened(path, os.O_RDWR | os.O_EXCL) as fd:
        if _diskseq_of(fd) != seq:
            raise OSError(errno.ESTALE, "another disk stands there now")
        for offset, length in extents:
            done = 0
            while done < length:
                done += os.pwrite(fd, bytes(min(EDGE_BYTES, length - done)), offset + done)
            os.fsync(fd)


def dm_name(name: str) -> str:
    """Return the device-mapper name of a device; empty if it is no mapping."""
    return system_text.read_line_or_empty(BLOCK / name / "dm" / "name")


def uses(disk: str) -> list[Use]:
    """Mounts, swap and holders of a disk, its partitions and all that stands on them."""
    users = [
        Use(
            name,
            "carries the root file system" if where == "/" else f"mounted on {printable(where)}",
        )
        for name, where in mounted()
        if disk in chain(name)
    ]
    swaps = (_plain(line.split()[0]) for line in system_text.read(SWAPS).splitlines()[1:])
    names = filter(None, map(kernel_name, swaps))
    users += [Use(name, "used as swap") for name in names if disk in chain(name)]
    for name in (disk, *partitions(disk)):
        holders = BLOCK / name / "holders"
        for holder in sorted(holders.iterdir()) if holders.exists() else ():
            called = dm_name(holder.name) or holder.name
            users.append(Use(name, f"held by {printable(called)}"))
        users += [Use(name, f"held by {loop}") for loop in _loops_over(name)]
    return users + _named_in_tables(disk) + exports(disk) + openers(disk)


def exports(disk: str) -> list[Use]:
    """Who serves the disk to others without a descriptor.

    The kernel, as configfs has it, and a virtual function of its controller that a program drives
    (linux-nvme, LIO, kernel Documentation/ABI/testing/sysfs-bus-pci).
    """
    names = [disk, *partitions(disk)]
    device = BLOCK / disk / "device"
    # A passthru subsystem is told the controller.
    files = {device / "dev": disk, **dict.fromkeys(device.glob("nvme*/dev"), disk)}
    files |= {BLOCK / name / "dev": name for name in names}
    names_by_number = {n: name for file, name in files.items() if (n := _number(file)) is not None}
    users = []
    for attribute in sorted(path for form in _EXPORTS for path in CONFIGFS.glob(form)):
        with suppress(OSError):
            for word in system_text.read(attribute).split():
                if word.startswith("/dev/") and (name := names_by_number.get(_rdev(word) or 0)):
                    place = attribute.parent.relative_to(CONFIGFS)
                    users.append(Use(name, f"exported by {printable(str(place))}"))
    for parent in device.resolve().parents:
        for function in sorted(parent.glob("virtfn*/driver")):
            if function.resolve().name in _USER_SPACE:
                address = function.parent.resolve().name
                users.append(Use(disk, f"shared with {address}, which a program drives"))
    return list(dict.fromkeys(users))


def given_away() -> list[str]:
    """Storage controllers that the kernel does not drive but a program may: address and driver."""
    return [
        f"{function.name} ({driver})"
        for driver in _USER_SPACE
        for function in sorted((PCI_DRIVERS / driver).glob("*:*:*.*"))
        if system_text.read(function / "class").startswith("0x01")
    ]


def _number(file: Path) -> int | None:
    """Return the device number in a file of sysfs; None without one."""
    try:
        major, minor = system_text.read(file).split(":")
    except OSError:
        return None
    return os.makedev(int(major), int(minor))


def _rdev(path: str) -> int | None:
    try:
        return os.stat(path).st_rdev or None  # noqa: PTH116 - as it was written there
    except OSError:
        return None


def _named_in_tables(disk: str) -> list[Use]:
    """Return what is to be mounted or opened from a disk later, blank as it may be until then."""
    names = {disk, *partitions(disk)}
    users = []
    for table, column in ((Path("/etc/fstab"), 0), (Path("/etc/crypttab"), 1)):
        with suppress(OSError):
            for line in system_text.read(table).splitlines():
                fields = line.partition("#")[0].split()
                key, _, value = fields[column].partition("=") if len(fields) > 1 else ("", "", "")
                path = f"/dev/disk/by-{key.lower()}/{value.strip(chr(34))}" if value else key
                if path.startswith("/dev/") and (name := kernel_name(_plain(path))) in names:
                    users.append(Use(str(name), f"named in {table}"))
    return users


def openers(disk: str) -> list[Use]:
    """List the programs that have the disk or a part of it open, exclusively or not.

    Virtual machines and databases have theirs so, also by its generic device (ng, sg, bsg), which
    is no block device. Tools look at a disk for moments, and who counts is seen three times; udev,
    which may look for longer on a busy machine, is kept away by `held`.
    """
    names = [name for name in (disk, *partitions(disk)) if kernel_name(f"/dev/{name}")]
    nodes = {(stat.S_IFBLK, Path("/dev", name).stat().st_rdev): name for name in names}
    device = BLOCK / disk / "device"
    generic = [*device.glob("scsi_generic/*/dev"), *device.glob("bsg/*/dev")]
    generic.append(BLOCK.parent / "nvme-generic" / disk.replace("nvme", "ng", 1) / "dev")
    nodes |= {(stat.S_IFCHR, n): f.parent.name for f in generic if (n := _number(f)) is not None}
    lasting: set[tuple[str, str]] = set()
    for look in range(3):
        open_ones = set(_open_in(nodes))
        lasting = lasting & open_ones if look else open_ones
        if not lasting:
            break
        time.sleep(0.1)
    return [Use(name, how) for name, how in sorted(lasting)]


def _open_in(nodes: Mapping[tuple[int, int], str]) -> Iterator[tuple[str, str]]:
    """(device, how) for every process but this one that has one of these open or in memory.

    `nodes`: the name of a device by its kind (`S_IFBLK`, `S_IFCHR`) and number.
    """
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            descriptors = list((process / "fd").iterdir())
            who = command_name(process)
        except OSError:
            continue  # it ended while we looked
        for descriptor in descriptors:
            with suppress(OSError):
                status = descriptor.stat()
                kind = stat.S_IFMT(status.st_mode)
                if name := nodes.get((kind, status.st_rdev)):
                    yield name, f"open in {who}"
                elif kind == 0:  # io_uring keeps files whose descriptors may be closed
                    text = system_text.read(process / "fdinfo" / descriptor.name)
                    for word in text.split() if "UserFiles" in text else ():
                        if name := nodes.get((stat.S_IFBLK, _rdev(f"/dev/{Path(word).name}") or 0)):
                            yield name, f"open in {who}"
        with suppress(OSError):
            lines = system_text.read(process / "maps").splitlines()
            for path in {_plain(line[line.index("/dev/") :]) for line in lines if "/dev/" in line}:
                if mapped := nodes.get((stat.S_IFBLK, _rdev(path) or 0)):
                    yield mapped, f"mapped into {who}"


def command_name(process: Path) -> str:
    """`name[pid]` of a process by its folder in /proc, for people; raises OSError."""
    return f"{sentence(system_text.read(process / 'comm').strip())}[{process.name}]"


def holder_elsewhere(disk: str) -> str:
    """Why a disk is busy that this namespace shows no use of, in the words of `Use.how`."""
    wanted = {system_text.read(BLOCK / name / "dev").strip() for name in (disk, *partitions(disk))}
    for process in sorted(Path("/proc").glob("[0-9]*")):
        try:
            lines = system_text.read(process / "mountinfo").splitlines()
            name = command_name(process)
        except OSError:
            continue  # it ended while we looked
        for fields in (line.split() for line in lines):
            if fields[2] in wanted:
                return f"mounted on {printable(_plain(fields[4]))} for {name} alone"
    return "held exclusively by a program, as ZFS does"


def _loops_over(name: str) -> list[str]:
    """Loop devices set up on a device: the kernel does not list them as its holders."""
    files = sorted(BLOCK.glob("loop*/loop/backing_file"))
    return [
        file.parents[1].name
        for file in files
        if kernel_name(system_text.read(file).strip()) == name
    ]


def _name_of(major: int, minor: int) -> str | None:
    link = Path(f"/sys/dev/block/{major}:{minor}")
    return link.resolve().name if link.exists() else None


def chain(name: str) -> set[str]:
    """Return the device and all devices below it, down to whole disks."""
    members: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in members or not (BLOCK / current).exists():
            continue
        members.add(current)
        real = (BLOCK / current).resolve()
        if (real / "partition").exists():
            waiting.append(real.parent.name)
        if (real / "slaves").exists():
            waiting += [entry.name for entry in (real / "slaves").iterdir()]
    return members


def mounted() -> Iterator[tuple[str, str]]:
    """Kernel name and mount point of everything mounted from a block device."""
    for number, where, source in mounts():
        major, minor = (int(part) for part in number.split(":"))
        # Some file systems (btrfs, zfs) have a device number of their own: ask their source.
        if name := _name_of(major, minor) or kernel_name(source):
            yield name, where


def mounts() -> Iterator[tuple[str, str, str]]:
    """`major:minor`, mount point and source of all that is mounted, as the kernel has it."""
    for line in system_text.read(Path("/proc/self/mountinfo")).split("\n"):
        left, separator, right = line.partition(" - ")
        if separator:
            fields = left.split(" ")
            yield fields[2], _plain(fields[4]), _plain(right.split(" ")[1])


def _plain(text: str) -> str:
    """Undo the kernel's octal escapes of blanks in paths."""
    for escaped, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escaped, char)
    return text
