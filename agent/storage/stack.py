"""The states of the storage and the ways between them, a small graph:.

    bare --map--> mapped --format--> formatted --mount--> mounted

The way down undoes every step. The state is read from the kernel, not remembered, so what a
crashed run left behind is found and taken down like anything else. Any failure on the way up goes
back to bare: nothing mapped, nothing mounted, a range that locks locked.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.storage import (
    devices,
    guard,
    layout,
    mapping,
    opal,
    opal_ioctl,
    plaintext_probe,
    registry,
)
from agent.storage.base import Evidence, Kind, Place, settings
from agent.storage.facts import Partition
from agent.storage.secrets import Secrets
from agent.system.command import CommandError, Progress, program_path, run
from contract import system_text
from contract.errors import AgentError
from contract.places import MOUNT_POINT
from contract.plan import Configuration, Disk, Filesystem, StorageSpec
from contract.problem import wordings_of

STATES = ("bare", "mapped", "formatted", "mounted")
_PATIENCE_S = 5
_FSOPEN, _FSOPEN_CLOEXEC = 430, 1  # of a call that libc has no function for


class StorageError(AgentError):
    """A configuration could not be entered or left."""

    WORDINGS = wordings_of("agent/storage", "StorageError")


@dataclass(frozen=True)
class Entered:
    """A configuration that is entered; `first_discard` is the outcome of the discard before it.

    `took_s` is the whole switch from the earlier state, `mkfs_s` mkfs's part of it.
    """

    configuration: Configuration
    kind: Kind
    place: Place
    evidence: Evidence
    took_s: float
    mkfs_s: float
    first_discard: str


class Stack:
    """At most one configuration is entered at a time."""

    def __init__(
        self,
        spec: StorageSpec,
        secrets: Secrets,
        *,
        hold: Callable[[Disk], AbstractContextManager[None]] = guard.holding,
        check: Callable[[Disk], Partition] = guard.check_ours,
        load_kind: Callable[[str], Kind] = registry.load,
        mapper: Any = mapping,
        mount_point: Path = Path(MOUNT_POINT),
    ) -> None:
        self.spec = spec
        self.secrets = secrets
        self.mount_point = mount_point
        self.entered: Entered | None = None
        self._hold = hold
        self._check = check
        self._load_kind = load_kind
        self._mapper = mapper

    @property
    def state(self) -> str:
        """One of `STATES`, as the kernel sees it."""
        if not self._mapper.devices():
            return "bare"
        if self._mapper.mounts():
            return "mounted"
        return "formatted" if self._mapper.formatted() else "mapped"

    def enter(self, name: str) -> Entered:
        """Enter a configuration from any state; freshly formatted, mounted.

        Raises AgentError (guard, commands, Opal) with the storage back to bare; a configuration
        that is not available here changes nothing.
        """
        start_s = time.monotonic()
        configuration = self.spec.configurations.get(name)
        if configuration is None:
            names = ", ".join(sorted(self.spec.configurations))
            raise StorageError("unknown", name=name, known=names)
        kind = self._load_kind(configuration.kind)
        completed, broken = settings(kind, configuration.disk, configuration.settings)
        if broken:
            raise StorageError("settings", name=name, broken="; ".join(broken))
        configuration = replace(configuration, settings=completed)
        filesystem = configuration.filesystem or self.spec.filesystem
        if reason := self.why_not(configuration):
            raise StorageError("unavailable", why=reason)
        self.leave()
        try:
            place, evidence, discard = self._map(configuration, kind)
            mkfs_s = self._format(configuration, filesystem)
            self._mount(configuration, filesystem)
            took_s = time.monotonic() - start_s
            self.entered = Entered(configuration, kind, place, evidence, took_s, mkfs_s, discard)
            return self.entered
        except BaseException as error:
            self._go_back(error)
            raise

    def why_not(self, configuration: Configuration) -> str | None:
        """Return the sentence on what this machine lacks for a configuration, with the remedy.

        None if it lacks nothing.
        """
        kind = self._load_kind(configuration.kind)
        filesystem = (configuration.filesystem or self.spec.filesystem).type
        if not _kernel_has(filesystem):
            return (
                f"This kernel has no {filesystem}, which configuration {configuration.name} needs: "
                "install the kernel's module for it, or leave the configuration out."
            )
        if not shutil.which(f"mkfs.{filesystem}", path=program_path()):
            return (
                f"Configuration {configuration.name} needs mkfs.{filesystem}, which is not here: "
                "install the file system's package, or leave the configuration out."
            )
        return kind.why_not(configuration)

    def leave(self) -> None:
        """Return to bare from any state; a mapping that is not ours is left alone.

        It relies only on what the kernel reports of our own mappings. If a step fails the others
        are still tried, and after an internal error all are tried again. Raises AgentError, or the
        internal error.
        """
        try:
            self._go_down()
        except AgentError:
            raise
        except BaseException:
            self._go_down()
            raise

    def _go_down(self) -> None:
        """Take every step down even if one fails, and raise an error once all were tried."""
        errors: list[Exception] = []
        try:
            names = (devices.kernel_name(disk.by_id) for disk in self.spec.disks.values())
            foreign_mappings = self._mapper.list_foreign({name for name in names if name})
        except Exception as error:  # noqa: BLE001 - raised below
            foreign_mappings, errors = [], [error]
        if foreign_mappings:
            raise StorageError("not-ours", others="; ".join(foreign_mappings))
        self.entered = None
        for descend in (self._unmount, self._detach, self._mapper.close, self._lock):
            try:
                descend()
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if not errors:
            return
        # What is in use has given way and is closed: a range that stays open weighs more.
        errors.sort(key=lambda error: isinstance(error, StorageError | mapping.HeldError))
        raise errors[0]

    @contextmanager
    def below(self, disk: Disk) -> Iterator[Place]:
        """Hold and check the disk's place without a mapping, for a writer of the extent itself.

        A range that locks is open during the block. Raises AgentError.
        """
        self.leave()
        with self._hold(disk):
            place = layout.place(disk, self.spec.extent, self._check(disk))
            locking_range = opal.range_found(place, self.secrets)
            try:
                if locking_range is not None and locking_range.state != "unlocked":
                    pin = self.secrets.opal_admin_pin
                    opal_ioctl.unlock(place.partition, place.number, pin)
                yield place
            finally:
                opal.relock(place, self.secrets)

    def _go_back(self, first: BaseException) -> None:
        """Return to bare after a failure; a second failure is reported without hiding it."""
        try:
            self.leave()
        except AgentError as second:
            if str(second) == str(first):  # a refused PIN, which is not tried again
                return
            if isinstance(first, AgentError):
                raise StorageError("not-closed", first=str(first), second=str(second)) from first
            message = f"fde: Closing the storage stack failed too: {second}"
            print(message, file=sys.stderr, flush=True)

    def locked_reads(self) -> dict[str, str | None]:
        """Try one direct read of each locked range, from bare; return the error's name by serial.

        None for a range that could be read. Raises AgentError.
        """
        locked = (
            place
            for place in self._locking()
            if (status := opal.range_found(place, self.secrets)) and status.state == "locked"
        )
        read = plaintext_probe.locked_read
        return {p.disk.serial: read(p.partition, p.extent.offset_bytes) for p in locked}

    # The ways up.

    def _map(self, configuration: Configuration, kind: Kind) -> tuple[Place, Evidence, str]:
        """Make the mapping; the outcome of the discard before it comes last."""
        disk = self.spec.disks[configuration.disk]
        with self._hold(disk):
            place = layout.place(disk, self.spec.extent, self._check(disk))
            if kind.range_state == "off":
                opal.switch_off(place, self.secrets)
            evidence = kind.before_attach(place, configuration, self.secrets)
            # A range that locks can be written once it is open; TrueCrypt's header is in there.
            locks = kind.range_state == "unlocked"
            discards, outcome = self.spec.discard_first, layout.NOT_PLANNED
            if discards and not locks:
                outcome = layout.discard_extent(place)
            evidence |= kind.attach(place, configuration, self.secrets)
            if discards and locks:
                outcome = layout.discard_extent(place)
            return place, evidence, outcome

    def _format(self, configuration: Configuration, filesystem: Filesystem) -> float:
        """Make the file system; return the seconds that mkfs took."""
        self._check(self.spec.disks[configuration.disk])
        start_s = time.monotonic()
        # -K: not by mkfs, which would reach the disk only through some stacks. A target's own
        # mke2fs.conf may add defaults that no mount shows, such as nobarrier or data=journal.
        argv = [f"mkfs.{filesystem.type}", "-q", "-K", *filesystem.options, self._mapper.PATH]
        argv = ["env", "MKE2FS_CONFIG=/nonexistent", *argv]
        run(argv, progress=devices.progress(self._mapper.PATH))
        return time.monotonic() - start_s

    def _mount(self, configuration: Configuration, filesystem: Filesystem) -> None:
        self.mount_point.mkdir(parents=True, exist_ok=True)
        mount_options = [filesystem.mount_options] if filesystem.mount_options else []
        mount_options += ["discard"] if configuration.discard else []
        options = ["-o", ",".join(mount_options)] if mount_options else []
        argv = ["mount", "-t", filesystem.type, *options, self._mapper.PATH, str(self.mount_point)]
        run([*_for_all(), *argv])
        if not self._mapper.mounts():
            raise StorageError("not-seen", folder=str(self.mount_point))

    # The ways down.

    def _unmount(self) -> None:
        """Unmount, and hide a file system that is in use.

        Raises the first error, StorageError for one in use, once all were tried.
        """
        errors: list[Exception] = []
        try:
            self._mapper.release()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
        for folder in self._mapper.mounts():
            try:
                self._unmount_one(folder)
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if errors:
            raise errors[0]

    def _unmount_one(self, folder: Path) -> None:
        """Unmount, or take out of sight and raise StorageError with who uses it."""
        try:
            _unmount(folder, devices.progress(self._mapper.PATH))
        except CommandError as error:
            try:
                # They are found by the folder, as long as it is there.
                users = ", ".join(self._mapper.holders()) or "the kernel"
            finally:
                run([*_for_all(), "umount", "--lazy", str(folder)])
            facts = {"folder": str(folder), "users": users, "error": str(error)}
            raise StorageError("busy", **facts) from error

    def _detach(self) -> None:
        for configuration in self.spec.configurations.values():
            self._load_kind(configuration.kind).detach(configuration)

    def _lock(self) -> None:
        """Lock what locks; raises AgentError also where a disk no longer shows that it can."""
        errors: list[AgentError] = []
        for place in self._locking():
            try:
                if opal_ioctl.find_status(place.partition) is None:
                    raise opal_ioctl.OpalError("no-opal", by_id=place.disk.by_id)
                opal.relock(place, self.secrets)
            except AgentError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _locking(self) -> Iterator[Place]:
        """Yield the places whose configurations lock a range, if their partition exists."""
        locking = {
            configuration.disk
            for configuration in self.spec.configurations.values()
            if self._load_kind(configuration.kind).range_state == "unlocked"
        }
        for role in sorted(locking):
            disk = self.spec.disks[role]
            name = devices.kernel_name(disk.by_id)
            parts = devices.partitions(name) if name else []
            if len(parts) == 1:
                yield Place(disk, f"/dev/{parts[0]}", 1, self.spec.extent)


@contextmanager
def bare_after_internal_error(stack: Stack) -> Iterator[None]:
    """Return to bare if the block ends in an error that is not ours."""
    try:
        yield
    except AgentError:
        raise
    except BaseException:
        with suppress(Exception):
            stack.leave()
        raise


def _kernel_has(filesystem: str) -> bool:
    """Return whether the kernel can mount a file system.

    fsopen(2) makes it load the module, which a service's sandbox does not let us do ourselves.
    """
    lines = system_text.read(Path("/proc/filesystems")).splitlines()
    if filesystem in (line.split()[-1] for line in lines):
        return True
    fd = ctypes.CDLL(None).syscall(_FSOPEN, filesystem.encode(), _FSOPEN_CLOEXEC)
    if fd >= 0:
        os.close(fd)
    return bool(fd >= 0)


def _for_all() -> list[str]:
    """Return a prefix for `mount` and `umount`, if this process has a separate mount namespace.

    A service's sandbox is one: no other process would see what was mounted only there, and it could
    not unmount what was mounted before.
    """
    first = Path("/proc/1/ns/mnt")
    try:
        apart = first.readlink() != Path("/proc/self/ns/mnt").readlink()
    except OSError:  # not root: whoever may not look may not mount either
        return []
    return ["nsenter", f"--mount={first}", "--"] if apart else []


def _unmount(folder: Path, progress: Progress) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            run([*_for_all(), "umount", str(folder)], progress=progress)
            return
        except CommandError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)
