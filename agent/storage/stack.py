"""The states of the storage and the ways between them: bare, mapped, formatted, mounted.

The state is read from the kernel, not remembered, so what a crashed run left behind is found and
taken down like anything else. Any failure on the way up goes back to bare.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from agent.command import CommandError, run
from agent.errors import AgentError
from agent.plan import Configuration, Disk, StorageSpec
from agent.storage import devices, guard, layout, mapping, registry
from agent.storage.base import Kind, Place
from agent.storage.secrets import Secrets

_PATIENCE_S = 5


class StorageError(AgentError):
    """A configuration could not be entered or left."""


class Mapping(Protocol):
    """What the stack needs of `agent.storage.mapping`."""

    PATH: str

    def active(self) -> str | None: ...
    def close(self) -> None: ...
    def mounts(self) -> list[Path]: ...


@dataclass(frozen=True)
class Entered:
    """A configuration that stands; `evidence` was had while its mapping was still closed."""

    configuration: Configuration
    kind: Kind
    place: Place
    evidence: dict[str, Any]
    took_s: float


class Stack:
    """At most one configuration is entered at a time."""

    def __init__(
        self,
        spec: StorageSpec,
        secrets: Secrets,
        *,
        check: Callable[[Disk], guard.Partition] = guard.check_ours,
        load_kind: Callable[[str], Kind] = registry.load,
        mapper: Mapping | ModuleType = mapping,
        mount_point: Path = Path(guard.MOUNT_POINT),
    ) -> None:
        self.spec = spec
        self.secrets = secrets
        self.mount_point = mount_point
        self.entered: Entered | None = None
        self._check = check
        self._load_kind = load_kind
        self._mapper = mapper

    @property
    def state(self) -> str:
        """`bare`, `mapped` or `mounted`, as the kernel sees it."""
        if self._mapper.active() is None:
            return "bare"
        return "mounted" if self._mapper.mounts() else "mapped"

    def enter(self, name: str) -> Entered:
        """Go to a configuration from wherever the storage stands; freshly formatted, mounted.

        Raises AgentError (guard, commands, Opal) with the storage back to bare.
        """
        configuration = self.spec.configurations.get(name)
        if configuration is None:
            known = ", ".join(sorted(self.spec.configurations))
            raise StorageError(f"There is no configuration {name!r}: choose one of {known}.")
        kind = self._load_kind(configuration.kind)
        self.leave()
        start_s = time.monotonic()
        try:
            place = self._place(configuration)
            evidence = kind.before_attach(place)
            kind.attach(place, configuration, self.secrets)
            self._format(configuration)
            self._mount()
        except BaseException:
            self._abandon()
            raise
        took_s = time.monotonic() - start_s
        self.entered = Entered(configuration, kind, place, evidence, took_s)
        return self.entered

    def leave(self) -> None:
        """Go to bare: unmount, close the mapping, see that nothing stays unlocked."""
        configurations = (
            [self.entered.configuration]
            if self.entered
            else list(self.spec.configurations.values())
        )
        for folder in self._mapper.mounts():
            _unmount(folder)
        self._mapper.close()
        self.entered = None
        for configuration in configurations:
            self._settle(configuration)

    def _place(self, configuration: Configuration) -> Place:
        disk = self.spec.disks[configuration.disk]
        return layout.place(disk, self.spec.extent, self._check(disk))

    def _format(self, configuration: Configuration) -> None:
        disk = self.spec.disks[configuration.disk]
        self._check(disk)
        filesystem = self.spec.filesystem
        run([f"mkfs.{filesystem.type}", "-q", *filesystem.options, self._mapper.PATH])

    def _mount(self) -> None:
        self.mount_point.mkdir(parents=True, exist_ok=True)
        filesystem = self.spec.filesystem
        options = ["-o", filesystem.mount_options] if filesystem.mount_options else []
        run(["mount", "-t", filesystem.type, *options, self._mapper.PATH, str(self.mount_point)])

    def _settle(self, configuration: Configuration) -> None:
        """The kind's own tidying, if its partition is there at all."""
        disk = self.spec.disks[configuration.disk]
        name = devices.kernel_name(disk.by_id)
        parts = devices.partitions(name) if name else []
        if len(parts) == 1:
            place = Place(disk, f"/dev/{parts[0]}", 1, self.spec.extent)
            self._load_kind(configuration.kind).after_detach(place, self.secrets)

    def _abandon(self) -> None:
        """Back to bare after a failure; a second failure must not hide the first."""
        try:
            self.leave()
        except AgentError as error:
            print(f"fde: while going back to bare: {error}", flush=True)


def _unmount(folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            run(["umount", str(folder)])
            return
        except CommandError as error:
            if time.monotonic() > deadline:
                users = ", ".join(_users(folder)) or "the kernel alone"
                raise StorageError(
                    f"{folder} cannot be unmounted, it is used by {users}: stop it. ({error})"
                ) from error
        time.sleep(0.5)


def _users(folder: Path) -> list[str]:
    """`name[pid]` of the processes that have a file or their working folder in there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = [process / "cwd", *(process / "fd").iterdir()]
            if any(link.readlink().is_relative_to(folder) for link in links):
                found.append(f"{(process / 'comm').read_text().strip()}[{process.name}]")
        except OSError:
            continue  # it ended while we looked
    return found
