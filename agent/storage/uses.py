"""Users of a disk: found by device numbers, in every thread and every mount namespace.

Paths are only names: the node by which a loop device was set up may be deleted, and a container has
separate nodes. Threads of a process may each have separate descriptors and mounts, and outlive the
first one.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from agent.storage import devices
from agent.storage.devices import BLOCK
from contract import system_text
from contract.names import printable

EXCLUSIVE = (
    "held exclusively: by a driver, a file system that names no disk, as ZFS, or a mount namespace "
    "that no process is in"
)
CONFIGFS = Path("/sys/kernel/config")
BTRFS = Path("/sys/fs/btrfs")
SWAPS = Path("/proc/swaps")
ETC = Path("/etc")
# Where the kernel's servers are given what they export: nvmet, LIO, a USB gadget.
_EXPORTS = (
    "nvmet/subsystems/*/namespaces/*/device_path",
    "nvmet/subsystems/*/passthru/device_path",
    "target/core/*/*/udev_path",
    "target/core/*/*/info",
    "usb_gadget/*/functions/mass_storage.*/lun.*/file",
)
_LOOP_GET_STATUS64 = 0x4C05  # linux/loop.h
_LOOP_INFO64_BYTES = 232
_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272}.get(os.uname().machine)
_KCMP_FILES = 2  # linux/kcmp.h
_PIDFD_GETFD = 438  # on all architectures
_SO_PEEK_OFF = 42
_SCM_MAX_FD = 253
_syscall = ctypes.CDLL(None).syscall
_GONE = (errno.ENOENT, errno.ESRCH, errno.ENXIO, errno.ENODEV)


@dataclass(frozen=True)
class Use:
    """Why a device is busy: `device` is a kernel name, `how` reads on from "… is"."""

    device: str
    how: str


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo: its number, device number, mount point, file system, source, options."""

    id: str
    number: int
    where: str
    kind: str
    source: str
    options: str


@dataclass(frozen=True)
class Task:
    """A thread. /proc has a folder of each, also of those that it does not list."""

    process: int
    thread: int

    @property
    def folder(self) -> str:
        return f"/proc/{self.thread}"

    @property
    def name(self) -> str:
        """`name[pid]` of its process; raises OSError."""
        return devices.command_name(Path("/proc", str(self.process)))


@dataclass(frozen=True)
class Stack:
    """Block devices, each with those directly below it; `unknown`: loops, with the reason."""

    lower: Mapping[str, frozenset[str]]
    unknown: Mapping[str, str]

    def chain(self, name: str, bottom: Collection[str] = ()) -> set[str]:
        """Return the device and all devices below it, down to whole disks or those in `bottom`."""
        members: set[str] = set()
        waiting = {name} & self.lower.keys()
        while waiting:
            members |= waiting
            below = (self.lower.get(device, ()) for device in waiting if device not in bottom)
            waiting = set().union(*below) - members
        return members

    def over(self, disk: str) -> set[str]:
        """Return the disk, its partitions and all devices above them."""
        return {name for name in self.lower if disk in self.chain(name)}


def find_uses(disk: str) -> list[Use]:
    """Return the uses of a disk, its partitions and everything above them."""
    stack = read_stack()
    over = stack.over(disk)
    parts = [disk, *devices.partitions(disk)]
    names = filter(None, map(devices.kernel_name, swaps()))
    users = [*_mount_uses(over), *(Use(name, "used as swap") for name in names if name in over)]
    for name in parts:
        for holder in sorted(over.difference(parts)):
            if name in stack.lower[holder]:
                label = devices.dm_name(holder) or holder
                users.append(Use(name, f"held by {printable(label)}"))
    users += [
        Use(disk, f"perhaps held by {loop}, whose status cannot be read ({error})")
        for loop, error in sorted(stack.unknown.items())
    ]
    return users + _named_in_tables(parts) + exports(disk) + openers(disk)


def read_stack(blocks: Path = BLOCK) -> Stack:
    """Read which block devices are above which: partitions, dm, md, bcache, loops."""
    lower: dict[str, frozenset[str]] = {}
    unknown = {}
    for name in os.listdir(blocks):
        below: set[str] = set()
        with suppress(OSError):  # a partition has none, or it was removed while we looked
            below.update(os.listdir(blocks / name / "slaves"))
        if (blocks / name / "partition").exists():
            below.add((blocks / name).resolve().parent.name)
        if (blocks / name / "loop").exists():
            try:
                # None for a file of btrfs or overlayfs, whose device number names no disk: its file
                # system is in use as well, and is found as such.
                below.update(filter(None, [devices.name_of(number_below_loop(name))]))
            except OSError as error:
                if error.errno not in _GONE:
                    unknown[name] = errno.errorcode.get(error.errno or 0, str(error))
        lower[name] = frozenset(below)
    return Stack(lower, unknown)


def number_below_loop(loop: str) -> int:
    """Return the number of the device that a loop reads, or of its file's file system.

    Raises OSError.
    """
    info = bytearray(_LOOP_INFO64_BYTES)
    with os.fdopen(_open_loop(loop), "rb", buffering=0) as file:
        fcntl.ioctl(file, _LOOP_GET_STATUS64, info, True)
    file_system, _inode, device = struct.unpack_from("=QQQ", info)
    return int(device or file_system)


def _open_loop(loop: str) -> int:
    """Open a loop device by its number: its node may be missing, or be another device's."""
    number = number_of(loop) or 0
    if _rdev(f"/dev/{loop}") == number:
        return os.open(f"/dev/{loop}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    # Not in /run or /tmp, where no device node can be opened.
    folder = tempfile.mkdtemp(prefix=".fde-", dir="/dev")
    try:
        os.mknod(f"{folder}/{loop}", 0o600 | stat.S_IFBLK, number)
        return os.open(f"{folder}/{loop}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def number_of(name: str) -> int | None:
    """Return the number of a block device by its kernel name; None if it does not exist."""
    return _number(BLOCK / name / "dev")


def _number(file: Path) -> int | None:
    """Return the device number in a file of sysfs; None without one."""
    try:
        major, minor = system_text.read(file).split(":")
    except OSError:
        return None
    return os.makedev(int(major), int(minor))


def _rdev(path: str) -> int | None:
    try:
        return os.stat(path).st_rdev or None
    except OSError:
        return None


def list_tasks() -> Iterator[Task]:
    """Yield all threads of all processes but this one."""
    for process in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if process != os.getpid():
            with suppress(OSError):  # it ended while we looked
                threads = os.listdir(f"/proc/{process}/task")
                yield from (Task(process, thread) for thread in sorted(map(int, threads)))


def mounts(folder: str = "/proc/self") -> Iterator[Mount]:
    """Yield all mounts as a thread sees them; raises OSError."""
    for line in system_text.read(Path(folder, "mountinfo")).split("\n"):
        head, separator, right = line.partition(" - ")
        if separator:
            fields, (kind, source, *super_options) = head.split(" "), right.split(" ")
            major, minor = fields[2].split(":")
            number = os.makedev(int(major), int(minor))
            options = " ".join([fields[5], *super_options])
            yield Mount(fields[0], number, _plain(fields[4]), kind, _plain(source), options)


def mount_options(folder: Path) -> str:
    """Return the options of the last mount at a folder, those of its file system included."""
    options = [mount.options for mount in mounts() if mount.where == str(folder)]
    return options[-1].replace(" ", ",") if options else ""


def _mount_uses(over: Set[str]) -> list[Use]:
    """Return the mounts of these devices, those in our own mount namespace first."""
    volumes = []
    for folder in BTRFS.glob("*/devices"):
        with suppress(FileNotFoundError):  # unmounted while we looked
            volumes.append(frozenset(os.listdir(folder)))
    users = [
        Use(name, "carries the root file system" if where == "/" else f"mounted on {where}")
        for mount in mounts()
        for name, where in _mounted(mount, over, volumes)
    ]
    for task in _other_views():
        with suppress(OSError):  # it ended while we looked
            seen_devices = {use.device for use in users}
            users += [
                Use(name, f"mounted on {where} in the mount namespace of {task.name}")
                for mount in mounts(task.folder)
                for name, where in _mounted(mount, over, volumes)
                if name not in seen_devices
            ]
    mounted = {use.device for use in users}
    for volume in volumes:  # mounted from a node that is gone
        users += [
            Use(name, "carries a btrfs file system that is mounted")
            for name in sorted(volume.intersection(over))
            if not mounted & volume
        ]
    return users


def _other_views() -> Iterator[Task]:
    """Yield a thread for each view of the mounts other than our own."""
    views = {_view("/proc/self")}
    for task in list_tasks():
        with suppress(OSError):  # it ended while we looked
            if (view := _view(task.folder)) not in views:
                views.add(view)
                yield task


def _view(folder: str) -> tuple[str, int, int]:
    """Return what decides which mounts a thread sees: its namespace, and its root in there."""
    root = os.stat(f"{folder}/root")
    return os.readlink(f"{folder}/ns/mnt"), root.st_dev, root.st_ino


def _mounted(
    mount: Mount, over: Set[str], volumes: Collection[frozenset[str]]
) -> Iterator[tuple[str, str]]:
    """Yield those of the devices that something is mounted from, and where, for people.

    btrfs and ZFS have device numbers that name no disk, and the first has several disks.
    """
    name = devices.name_of(mount.number) or devices.kernel_name(mount.source) or ""
    volume = next((members for members in volumes if name in members), frozenset[str]())
    for member in sorted((volume | {name}) & over):
        yield member, printable(mount.where)


def swaps() -> list[str]:
    """Return the devices and files that are in use as swap; " (deleted)" ends one that is gone."""
    if not SWAPS.exists():  # a kernel without swap
        return []
    return [_plain(line.split()[0]) for line in system_text.read(SWAPS).splitlines()[1:]]


def exports(disk: str) -> list[Use]:
    """Return servers in the kernel that give the disk to others without a descriptor.

    These are in configfs (nvmet, LIO), or a program drives a virtual function of the disk's
    controller (kernel Documentation/ABI/testing/sysfs-bus-pci).
    """
    names = [disk, *devices.partitions(disk)]
    device = BLOCK / disk / "device"
    # A passthru subsystem is given the controller.
    files = {device / "dev": disk, **dict.fromkeys(device.glob("nvme*/dev"), disk)}
    files |= {BLOCK / name / "dev": name for name in names}
    names_by_number = {n: name for file, name in files.items() if (n := _number(file)) is not None}
    users = []
    for attribute in sorted(path for form in _EXPORTS for path in CONFIGFS.glob(form)):
        with suppress(OSError):
            place = printable(str(attribute.parent.relative_to(CONFIGFS)))
            active = place.startswith("usb_gadget/") or (
                system_text.read_line_or_empty(attribute.parent / "enable") not in ("", "0")
            )
            for path in (w for w in system_text.read(attribute).split() if w.startswith("/")):
                if name := names_by_number.get(_rdev(path) or 0):
                    users.append(Use(name, f"exported by {place}"))
                # The kernel shows no number for it. A service's sandbox hides /home and /tmp.
                elif active and not os.path.exists(f"/proc/1/root{path}"):
                    users.append(Use(disk, f"perhaps {printable(path)}, exported by {place}"))
    for parent in device.resolve().parents:
        for function in sorted(parent.glob("virtfn*/driver")):
            if function.resolve().name in devices.USER_SPACE:
                address = function.parent.resolve().name
                users.append(Use(disk, f"shared with {address}, which a program drives"))
    return list(dict.fromkeys(users))


def _named_in_tables(names: Collection[str]) -> list[Use]:
    """Return entries that will mount or open a disk later, even if it is blank until then."""
    users = []
    for table, entry in _table_entries():
        tag, _, value = entry.partition("=")
        # As udev names its links.
        link = re.sub(r"[^\w#+\-.:=@]", lambda odd: f"\\x{ord(odd[0]):02x}", value.strip("\"'"))
        path = entry if entry.startswith("/dev/") else f"/dev/disk/by-{tag.lower()}/{link}"
        # The partition need not be there yet.
        on_disk = re.sub(r"-part\d+$", "", path)
        if (name := devices.kernel_name(path) or devices.kernel_name(on_disk)) in names:
            users.append(Use(str(name), f"named in {table}"))
    return users


def _table_entries() -> Iterator[tuple[Path, str]]:
    """Yield the devices, or their tags, in fstab, crypttab and systemd's units."""
    for table, column in ((ETC / "fstab", 0), (ETC / "crypttab", 1)):
        with suppress(OSError):
            for fields in map(str.split, system_text.read(table).splitlines()):
                if len(fields) > 1 and not fields[0].startswith("#"):
                    yield table, _plain(fields[column])
    units = ETC / "systemd/system"
    for unit in sorted([*units.glob("*.mount"), *units.glob("*.swap")]):
        with suppress(OSError):  # a link to a unit that is gone
            for line in system_text.read(unit).splitlines():
                if line.startswith("What="):
                    yield unit, line.removeprefix("What=").strip()


def openers(disk: str) -> list[Use]:
    """List the programs that have the disk or a part of it open, exclusively or not.

    Virtual machines and databases do, also by its generic device (ng, sg, bsg), which is no block
    device. Tools look at a disk for moments, so a user counts if it is seen three times; udev,
    which may look for longer on a busy machine, is kept away by `devices.hold`.
    """
    device = BLOCK / disk / "device"
    files = {BLOCK / name / "dev": stat.S_IFBLK for name in (disk, *devices.partitions(disk))}
    generic = [*device.glob("scsi_generic/*/dev"), *device.glob("bsg/*/dev")]
    generic.append(BLOCK.parent / "nvme-generic" / disk.replace("nvme", "ng", 1) / "dev")
    files |= dict.fromkeys(generic, stat.S_IFCHR)
    numbers = {(kind, _number(file)): file.parent.name for file, kind in files.items()}
    lasting: set[Use] = set()
    for look in range(3):
        open_ones = set(_Look(disk, numbers).uses())
        lasting = lasting & open_ones if look else open_ones
        if not lasting:
            break
        time.sleep(0.1)
    return sorted(lasting, key=lambda use: (use.device, use.how))


class _Look:
    """One look at the files that all threads have open or in memory.

    `numbers`: the name of a device by its kind (`S_IFBLK`, `S_IFCHR`) and number.
    """

    def __init__(self, disk: str, numbers: Mapping[tuple[int, int | None], str]) -> None:
        self._disk = disk
        self._numbers = numbers
        self._files: dict[tuple[str, str], str | None] = {}
        remote = [mount for mount in mounts() if is_remote(mount)]
        for task in _other_views():
            with suppress(OSError):  # it ended while we looked
                remote += filter(is_remote, mounts(task.folder))
        self._remote = {mount.id for mount in remote}
        self._remote_numbers = {mount.number for mount in remote}

    def uses(self) -> Iterator[Use]:
        shown: Task | None = None  # the last one: compared with all, many threads take for ever
        for task in list_tasks():
            if shown and shown.process == task.process and share_files(task, shown):
                continue
            try:
                uses = {*self._opened(task), *self._mapped(task)}
                yield from (Use(name, f"{how} {task.name}") for name, how in uses)
                shown = task
            except PermissionError:
                process_text = f"process {task.process}, whose descriptors cannot be read"
                yield Use(self._disk, f"perhaps open in {process_text}")
            except OSError as error:
                if error.errno not in _GONE:
                    raise

    def _opened(self, task: Task) -> Iterator[tuple[str, str]]:
        for descriptor in os.listdir(f"{task.folder}/fd"):
            try:
                if self._remote:
                    info = system_text.read(Path(f"{task.folder}/fdinfo/{descriptor}"))
                    if info.partition("mnt_id:")[2].split()[0] in self._remote:
                        continue
                status = os.stat(f"{task.folder}/fd/{descriptor}")
            except PermissionError:
                raise
            except OSError:
                continue  # closed while we looked, or of a server that does not answer
            kind = stat.S_IFMT(status.st_mode)
            if name := self._numbers.get((kind, status.st_rdev)):
                yield name, "open in"
            elif kind in (0, stat.S_IFSOCK):
                with suppress(FileNotFoundError):
                    info = system_text.read(Path(f"{task.folder}/fdinfo/{descriptor}"))
                    if kind:
                        yield from self._sent(task, int(descriptor), info)
                    else:
                        yield from self._registered(task, info)

    def _registered(self, task: Task, info: str) -> Iterator[tuple[str, str]]:
        """Yield files that io_uring keeps; their descriptors may be closed, paths name them."""
        _, _, files = info.partition("UserFiles:")
        for line in files.partition("UserBufs:")[0].splitlines()[1:]:
            path = _plain(line.partition(": ")[2].strip())
            places = (path, f"{task.folder}/root{path}", f"/dev/{Path(path).name}")
            numbers = [_rdev(place) for place in places if path.startswith("/")]
            names = (self._numbers.get((stat.S_IFBLK, number)) for number in numbers if number)
            if name := next(filter(None, names), None):
                yield name, "open in"
            elif path.endswith(" (deleted)"):
                yield self._disk, f"perhaps {printable(path)}, open in"

    def _sent(self, task: Task, descriptor: int, info: str) -> Iterator[tuple[str, str]]:
        """Yield files that were sent to a socket and not received yet (unix(7), SCM_RIGHTS)."""
        count = int(info.partition("scm_fds:")[2].split()[0]) if "scm_fds:" in info else 0
        if count:
            waiting = _peek(task, descriptor)
            names = (self._numbers.get(file_number) for file_number in waiting)
            yield from ((name, "sent to") for name in names if name)
            if len(waiting) < count:
                yield self._disk, "perhaps among the descriptors that were sent to"

    def _mapped(self, task: Task) -> Iterator[tuple[str, str]]:
        for line in system_text.read(Path(f"{task.folder}/maps")).splitlines():
            span, _rights, _offset, device, inode, *_ = line.split(maxsplit=5)
            major, minor = (int(number, 16) for number in device.split(":"))
            if inode == "0" or os.makedev(major, minor) in self._remote_numbers:
                continue
            if (device, inode) not in self._files:
                start, end = (f"{int(address, 16):x}" for address in span.split("-"))
                try:
                    status = os.stat(f"{task.folder}/map_files/{start}-{end}")
                except PermissionError:
                    raise
                except OSError:
                    continue  # unmapped while we looked
                number = (stat.S_IFMT(status.st_mode), status.st_rdev)
                self._files[device, inode] = self._numbers.get(number)
            if name := self._files[device, inode]:
                yield name, "mapped into"


def is_remote(mount: Mount) -> bool:
    """Return whether a program or another machine serves the mount, with no disk of this one.

    Reading its files may be refused even to root (another user's FUSE), or last for ever (NFS).
    """
    fuse = mount.kind.startswith("fuse") and "nodev" in mount.options.replace(" ", ",").split(",")
    return fuse or mount.kind in ("nfs", "nfs4", "cifs", "smb3")


def share_files(first: Task, second: Task) -> bool:
    """Whether two threads have one table of descriptors, as most have; False if unknown."""
    if _KCMP is None:
        return False
    return int(_syscall(_KCMP, first.thread, second.thread, _KCMP_FILES, 0, 0)) == 0


def _peek(task: Task, descriptor: int) -> list[tuple[int, int]]:
    """Return kind and number of at least some of the files that wait in a socket.

    A second descriptor of the socket reads them without taking them out.
    """
    waiting = []
    with ExitStack() as opened, suppress(OSError):
        pidfd = os.pidfd_open(task.process)
        opened.callback(os.close, pidfd)
        fd = _syscall(_PIDFD_GETFD, pidfd, descriptor, 0)
        if fd < 0:
            return []
        peer = opened.enter_context(socket.socket(fileno=fd))
        if peer.getsockopt(socket.SOL_SOCKET, _SO_PEEK_OFF) >= 0:
            return []  # looking would move where its owner looks next
        flags = socket.MSG_PEEK | socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        for level, kind, data in peer.recvmsg(1, socket.CMSG_SPACE(4 * _SCM_MAX_FD), flags)[1]:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                for (received_fd,) in struct.iter_unpack("=i", data[: len(data) // 4 * 4]):
                    opened.callback(os.close, received_fd)
                    status = os.fstat(received_fd)
                    waiting.append((stat.S_IFMT(status.st_mode), status.st_rdev))
    return waiting


def is_busy(path: str) -> bool:
    """Return whether somebody has the disk or a part of it exclusively: mounts, ZFS, ….

    The kernel refuses a second exclusive open. Tools hold a disk for moments: tried three times.
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


def explain_busy(disk: str) -> Use:
    """Explain why a disk is busy that no use of was found, as far as possible.

    An open file keeps its file system mounted. A mount namespace without a process is not searched:
    its maker may have put any program in there.
    """
    over = read_stack().over(disk)
    names = {number_of(name): name for name in over}
    for task in list_tasks():
        with suppress(OSError):  # it ended while we looked
            descriptors = [f"fd/{number}" for number in os.listdir(f"{task.folder}/fd")]
            for link in ("cwd", "root", *descriptors):
                with suppress(OSError):
                    if name := names.get(os.stat(f"{task.folder}/{link}").st_dev):
                        return Use(name, f"kept mounted by {task.name}, which has files on it open")
    for path in swaps():
        if path.endswith(" (deleted)"):
            return Use(disk, f"perhaps used as swap ({printable(path)})")
    return Use(disk, EXCLUSIVE)


def _plain(text: str) -> str:
    """Undo the kernel's octal escapes of blanks in paths."""
    for escaped, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escaped, char)
    return text
